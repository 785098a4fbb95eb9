import { type ErrorCode, HomeregionError } from '../../domain/errors.ts'
import { UNPRINTABLE } from '../../domain/unprintable.ts'

/** One thing wrong with a file, at a place an editor can jump to. Line and column start at 1; line 0: it has no place in a file. */
export type SourceProblem = {
  readonly file: string
  readonly line: number
  readonly column: number
  readonly message: string
  readonly hint: string | null
  /** The line with a caret under the place, secrets masked; empty where a line would say nothing. */
  readonly excerpt: string
}

/** More than this is one mistake repeated; the count of the rest is given. */
const SHOWN = 50

export function problemText(problem: SourceProblem): string {
  const place = problem.line === 0 ? problem.file : `${problem.file}:${problem.line}:${problem.column}`
  const head = `${place}: ${problem.message}`
  return [head, problem.excerpt, problem.hint === null ? '' : `  hint: ${problem.hint}`].filter(part => part !== '').join('\n')
}

/** All problems as one error, in the order of the file. */
export function problemsError(code: ErrorCode, file: string, problems: readonly SourceProblem[], next: string): HomeregionError {
  const ordered = [...problems].sort((a, b) => a.line - b.line || a.column - b.column)
  const more = ordered.length > SHOWN ? [`+${ordered.length - SHOWN} more`] : []
  return new HomeregionError(
    code,
    {
      fact: `${file} cannot be used: ${ordered.length === 1 ? '1 problem' : `${ordered.length} problems`}`,
      state: 'Nothing was changed.',
      next,
    },
    { fields: { report: [...ordered.slice(0, SHOWN).map(problemText), ...more].join('\n'), problems: ordered } },
  )
}

/** Places of a line, as offsets in it, whose text must not be shown. */
export type Mask = { readonly start: number; readonly end: number }

/** An excerpt is at most this wide; a longer line is cut around the caret. */
const WIDTH = 110

// What a password looks like when it was written where it does not belong.
const URL_PASSWORD = /(?<=:\/\/[^:/@\s"']*:)[^\s"',}]*(?=@)/g
const PARAMETER_PASSWORD = /(?<=[?&](?:ssl)?password=)[^&\s"',}]*/gi
const KEY_PASSWORD = /(?<=\w*pass(?:word|wd)?\w*["']?\s*[:=]\s*)(?![\s{[|>#])(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^,}\s][^,}#]*)/gi

/** The source line and a caret below it. `column` starts at 1. */
export function excerpt(line: string, lineNumber: number, column: number, masks: readonly Mask[]): string {
  const shown = masked(line, column - 1, [...masks, ...found(line)])
  const from = Math.max(0, Math.min(shown.caret - Math.floor(WIDTH / 2), shown.text.length - WIDTH))
  const window = printableLine(shown.text.slice(from, from + WIDTH)).trimEnd()
  const cut = from > 0 ? '…' : ''
  const number = String(lineNumber).padStart(5)
  return `${number} | ${cut}${window}\n${' '.repeat(number.length)} | ${' '.repeat(cut.length + shown.caret - from)}^`
}

function found(line: string): Mask[] {
  return [URL_PASSWORD, PARAMETER_PASSWORD, KEY_PASSWORD].flatMap(pattern =>
    [...line.matchAll(pattern)].map(m => ({ start: m.index, end: m.index + m[0].length })),
  )
}

function masked(line: string, caret: number, masks: readonly Mask[]): { text: string; caret: number } {
  let text = ''
  let at = 0
  let moved = caret
  for (const mask of [...masks].sort((a, b) => a.start - b.start || b.end - a.end)) {
    const start = Math.max(mask.start, at)
    if (mask.end <= start) continue
    text += `${line.slice(at, start)}***`
    if (caret >= mask.end) moved += 3 - (mask.end - start)
    else if (caret > start) moved -= caret - start
    at = mask.end
  }
  return { text: text + line.slice(at), caret: Math.max(0, moved) }
}

/** One column stays one column: tabs and everything a terminal would act on become a space or a mark. */
function printableLine(line: string): string {
  return line.replaceAll('\t', ' ').replace(new RegExp(UNPRINTABLE, 'gu'), '?')
}
