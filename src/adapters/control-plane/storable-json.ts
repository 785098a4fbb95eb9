/**
 * JSON text that PostgreSQL stores: jsonb and text refuse NUL and lone surrogates, and what a hook or a server said may hold both.
 * Losing such a character is better than losing the journal entry in the middle of a move.
 */
export function storableJson(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'string' ? storableText(inner) : inner)) ?? 'null'
}

function storableText(text: string): string {
  return text.replace(/\p{Cs}|\0/gu, '\u{FFFD}')
}
