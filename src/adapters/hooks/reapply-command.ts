import type { Config } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { Json } from '../../domain/evidence.ts'
import type { Reapply } from '../../domain/recovery.ts'
import { runProgram } from '../sinks/run-program.ts'
import { redact } from '../system/redaction.ts'

type Env = Readonly<Record<string, string | undefined>>

/** What any program needs to run; the secrets of this process are none of its business. */
const PASSED_ON = ['PATH', 'HOME', 'USER', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR']
/** The end of what it printed says why it failed. */
const SHOWN = 400

/** The configured command, one write at a time: argv as configured, the write on its stdin, nothing put together from either. */
export function createReapply(settings: Config['reapply'], env: Env): Reapply | null {
  if (settings === null) return null
  const own = Object.fromEntries(PASSED_ON.flatMap(name => (env[name] === undefined ? [] : [[name, env[name]]])))
  return async (write: Json, variables) => {
    const run = { place: 'reapply', argv: settings.command, env: { ...own, ...variables }, timeoutMs: settings.timeoutMs }
    const { code, stdout, stderr } = await runProgram({ ...run, input: `${JSON.stringify(write)}\n` }).catch((error: unknown) => {
      throw failed(error instanceof Error ? error.message : String(error), error)
    })
    if (code !== 0) throw failed(`the command ended with ${code}: ${redact(`${stdout}${stderr}`.trim()).slice(-SHOWN)}`)
  }
}

function failed(why: string, cause?: unknown): HomeregionError {
  return new HomeregionError('check-refused', { fact: `the write was not applied again: ${why}` }, { cause })
}
