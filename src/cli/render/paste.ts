import { wrapped } from './wrapped.ts'

/** What survives being pasted into a channel: see the limits of the chat, not of the terminal. */
const COLUMNS = 72
const CHARACTERS = 2800

/** One line as ASCII, without anything a chat acts on: control characters, fences, channel and user mentions. */
export function plain(line: string): string {
  return line
    .replace(/[^\x20-\x7e]/g, c => `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`)
    .replace(/```/g, "'''")
    .replace(/<([!@#])/g, '($1')
    .replace(/@(channel|here|everyone)\b/gi, '(at)$1')
}

/** Lines in a code fence that is always closed, broken where they are too long; what does not fit is counted, never cut off silently. */
export function fence(lines: readonly string[]): string {
  const narrow = lines.map(narrowed)
  const room = CHARACTERS - '```\n\n+9999 more\n```'.length
  let used = 0
  const fitting = narrow.filter(line => {
    used += line.length + 1
    return used <= room
  })
  const left = narrow.length - fitting.length
  return ['```', ...fitting, ...(left > 0 ? [`+${left} more`] : []), '```'].join('\n')
}

/** Between words; a word that is longer than a line, anywhere. */
function narrowed(line: string): string {
  const indent = line.length - line.trimStart().length + 4
  const pieces = wrapped(line, indent, COLUMNS).split('\n')
  return pieces.flatMap(piece => piece.match(new RegExp(`.{1,${COLUMNS}}`, 'g')) ?? ['']).join('\n')
}
