import type { Printer } from '../context.ts'

/** At a terminal; a line that goes into a log or a ticket stays one line, and so does what has lines of its own. */
export function fitted({ isTerminal, columns }: Pick<Printer, 'isTerminal' | 'columns'>, text: string, indent: number): string {
  return isTerminal && !text.includes('\n') ? wrapped(text, indent, columns) : text
}

/** Of a text of several lines, each; what is broken off is indented a little more than its line. */
export function fittedLines(printer: Pick<Printer, 'isTerminal' | 'columns'>, text: string): string {
  return text
    .split('\n')
    .map(line => fitted(printer, line, line.length - line.trimStart().length + 4))
    .join('\n')
}

/** What stands after a label of `width` columns, whose colour takes no room. */
export function fittedAfter(printer: Pick<Printer, 'isTerminal' | 'columns'>, text: string, width: number): string {
  return fitted(printer, `${' '.repeat(width)}${text}`, width).slice(width)
}

/** A command that still is one when it is copied: its lines end with what continues them. One with quotes in it stays whole. */
export function shellLines(command: string, indent: number, columns: number): string {
  if (command.includes("'")) return command
  return wrapped(`${' '.repeat(indent)}${command}`, indent, columns - 2)
    .slice(indent)
    .replaceAll('\n', ' \\\n')
}

/** Broken between words; what follows the first line is indented. */
export function wrapped(text: string, indent: number, columns: number): string {
  const lines: string[] = []
  let rest = text
  while (rest.length > columns) {
    const at = rest.lastIndexOf(' ', columns)
    if (at <= indent) break
    lines.push(rest.slice(0, at))
    rest = `${' '.repeat(indent)}${rest.slice(at + 1)}`
  }
  return [...lines, rest].join('\n')
}
