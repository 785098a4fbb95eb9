import { HomeregionError } from '../../domain/errors.ts'
import { EXIT } from '../../domain/exit-codes.ts'
import type { Printer } from '../context.ts'
import { fittedAfter, shellLines } from './wrapped.ts'

/** What went wrong, as a coded error: whatever is not one already is a bug, and says so. */
export function asCoded(error: unknown): HomeregionError {
  if (error instanceof HomeregionError) return error
  return new HomeregionError(
    'unexpected',
    {
      fact: `unexpected: ${error instanceof Error ? error.message : String(error)}`,
      state: 'What was changed before this is not known here; read it back before going on.',
      next: 'homeregion status (HOMEREGION_DEBUG=1 shows where it happened)',
    },
    { cause: error },
  )
}

/** Three lines: the fact, the state of the data, the command to run next. A report of many problems stands between. */
export function printError(error: HomeregionError, printer: Printer, debug: boolean): void {
  const { style } = printer
  const after = (text: string) => fittedAfter(printer, printable(text), 'error: '.length)
  printer.line(`${style.red('error:')} ${after(error.text.fact)}`)
  const report = error.fields['report']
  if (typeof report === 'string') printer.line(printable(report))
  if (error.text.state !== undefined) printer.line(`${style.bold('state:')} ${after(error.text.state)}`)
  if (error.text.next !== undefined) printer.line(`${style.bold('next:')}  ${nextLines(printer, printable(error.text.next))}`)
  if (debug) printer.line(printable((error.cause instanceof Error ? error.cause.stack : error.stack) ?? ''))
}

/** A command alone may be broken as a shell takes it; one with a remark behind it stays as it is. */
function nextLines({ isTerminal, columns }: Printer, next: string): string {
  return isTerminal && next.startsWith('homeregion ') && !next.includes('  ') ? shellLines(next, 'next:  '.length, columns) : next
}

export function errorJson(error: HomeregionError): string {
  const { fact, state, next } = error.text
  const fields = Object.fromEntries(Object.entries(error.fields).filter(([name]) => name !== 'report'))
  const body = {
    code: error.code,
    fact,
    state: state ?? null,
    next: next ?? null,
    exit: EXIT[error.exit].code,
    ...(Object.keys(fields).length === 0 ? {} : { fields }),
  }
  return JSON.stringify({ error: body }, (_name, value: unknown) => (typeof value === 'bigint' ? value.toString() : value))
}

// Server messages and names from outside may carry escapes that a terminal or a chat would act on. Line ends stay.
const ACTIVE = /[^\P{Cc}\n\t]|[\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu

/** The same for a text that has one line and no more, whatever somebody put into it. */
export function onOneLine(text: string): string {
  return printable(text).replace(/[\n\t]/g, c => `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`)
}

export function printable(text: string): string {
  return text.replace(ACTIVE, c => `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`)
}
