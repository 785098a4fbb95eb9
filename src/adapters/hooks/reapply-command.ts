import type { Config } from '../../domain/config.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import type { Json } from '../../domain/evidence.ts'
import type { Reapply } from '../../domain/recovery.ts'
import { runProgram } from '../sinks/run-program.ts'
import { redact } from '../system/redaction.ts'

type Env = Readonly<Record<string, string | undefined>>

/** What any program needs to run; the secrets of this process are none of its business. */
const PASSED_ON = ['PATH', 'HOME', 'USER', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR']
/** The end of what it printed, on one line: it says why it failed, and a screen is no place for the rest. */
const SHOWN = 160

/** The configured command, one write at a time: argv as configured, the write on its stdin, nothing put together from either. */
export function createReapply(settings: Config['reapply'], env: Env): Reapply | null {
  if (settings === null) return null
  const own = Object.fromEntries(PASSED_ON.flatMap(name => (env[name] === undefined ? [] : [[name, env[name]]])))
  return async (write: Json, variables) => {
    const run = { place: 'reapply.command', argv: settings.command, env: { ...own, ...variables }, timeoutMs: settings.timeoutMs }
    const { code, stdout, stderr } = await runProgram({ ...run, input: `${JSON.stringify(write)}\n` }).catch((error: unknown) => {
      throw isHomeregionError(error) && error.fields['started'] === false ? notStarted(error) : unknown(messageOf(error), error)
    })
    if (code !== 0) throw unknown(`reapply.command ended with exit code ${code}${itsWords(`${stdout}${stderr}`)}`)
  }
}

function itsWords(text: string): string {
  const line = redact(text).replace(/\s+/g, ' ').trim()
  if (line === '') return ' and said nothing'
  return `; its words: ${JSON.stringify(line.length > SHOWN ? `…${line.slice(-SHOWN)}` : line)}`
}

/** It may have done all of it, part of it or nothing before it failed. */
function unknown(why: string, cause?: unknown): HomeregionError {
  return new HomeregionError(
    'outcome-unknown',
    {
      fact: why,
      state: 'Whether the write was applied is not known. The item stays undecided; given again it has the same HOMEREGION_ITEM.',
    },
    { cause },
  )
}

function notStarted(cause: HomeregionError): HomeregionError {
  return new HomeregionError(
    'check-refused',
    {
      fact: cause.text.fact,
      state: 'The write was not applied; the item stays undecided.',
      next: 'homeregion config show (reapply.command)',
    },
    { cause },
  )
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
