import { Chalk } from 'chalk'
import { redact } from '../../adapters/system/redaction.ts'
import type { Printer } from '../context.ts'

export type OutputStream = NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number }

/** Off a terminal nothing tells the width; tables stay readable in a log at this one. */
const COLUMNS_OFF_TERMINAL = 100

export function createPrinter(stream: OutputStream, level: 0 | 1): Printer {
  const write = (text: string) => {
    stream.write(redact(text))
  }
  return {
    style: new Chalk({ level }),
    isTerminal: stream.isTTY === true,
    columns: stream.columns ?? COLUMNS_OFF_TERMINAL,
    write,
    line: (text = '') => write(`${text}\n`),
  }
}

/**
 * `homeregion … | head` closes the pipe early, and a terminal can go while a run is under way. That is no error of a run: it goes on, only its text has
 * nowhere to go. Any other failure of the stream is reported as it is.
 */
export function survivePipe(stream: NodeJS.WritableStream & { readonly isTTY?: boolean }): void {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE' && !(error.code === 'EIO' && stream.isTTY === true)) throw error
  })
}
