/** As it is typed in a shell: one word, whatever it holds. */
export function shellWord(text: string): string {
  return /^[\w.:@/+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
