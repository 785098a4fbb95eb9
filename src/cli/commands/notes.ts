import { wrapped } from '../render/wrapped.ts'

/** Commander's own width where there is no terminal to ask. */
const COLUMNS = 80

/** What stands below a command's flags, broken where the flags are. */
export function notes(text: string): () => string {
  return () => {
    const columns = process.stdout.isTTY ? process.stdout.columns : COLUMNS
    return text
      .split('\n')
      .map(line => wrapped(line, 0, columns))
      .join('\n')
  }
}
