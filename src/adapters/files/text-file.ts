import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs'

/** Why a file cannot be read as text, with the place where that is known. */
export type TextProblem = { readonly line: number; readonly column: number; readonly message: string }

/** UTF-8 text of a regular file up to `limitBytes`, without its BOM; or the problem. @throws the system's error when it cannot be opened */
export function readText(path: string, limitBytes: number): { readonly text: string } | { readonly problem: TextProblem } {
  const handle = openSync(path, 'r')
  try {
    const stat = fstatSync(handle)
    if (!stat.isFile() && !stat.isFIFO()) return { problem: { line: 1, column: 1, message: 'is not a file' } }
    // Refused by its size before a byte is read.
    if (stat.size > limitBytes) return { problem: tooLarge(stat.size, limitBytes) }
    const bytes = readFileSync(handle)
    return bytes.length > limitBytes ? { problem: tooLarge(bytes.length, limitBytes) } : decode(bytes)
  } finally {
    closeSync(handle)
  }
}

function tooLarge(size: number, limit: number): TextProblem {
  return { line: 1, column: 1, message: `is too large: ${size} bytes, the limit is ${limit}` }
}

export function decode(bytes: Uint8Array): { readonly text: string } | { readonly problem: TextProblem } {
  try {
    return { text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) }
  } catch {
    return { problem: { ...firstBad(bytes), message: 'is not UTF-8 text' } }
  }
}

/** Everything before the first bad byte decodes; the replacement character marks where that ends. */
function firstBad(bytes: Uint8Array): { line: number; column: number } {
  const lines = new TextDecoder('utf-8').decode(bytes).split('\n')
  const good = (line: string) => Buffer.from(line, 'utf8')
  let offset = 0
  for (const [i, line] of lines.entries()) {
    const at = line.indexOf('\uFFFD')
    const encoded = good(line)
    // A replacement character that is really in the file is three bytes there as well.
    if (at >= 0 && !Buffer.from(bytes.subarray(offset, offset + encoded.length)).equals(encoded)) return { line: i + 1, column: at + 1 }
    offset += encoded.length + 1
  }
  return { line: 1, column: 1 }
}
