import type { DrillSite } from '../../../sandbox/drill-site.ts'
import type { ErrorCode } from '../../domain/errors.ts'

/** A command of the rehearsal did not do what it should, in one line. */
export class StepFailed extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'StepFailed'
  }
}

/** Its JSON. @throws `StepFailed` when it does not end with 0 */
export async function needed<T>(site: DrillSite, args: readonly string[]): Promise<T> {
  const { code, stdout, stderr } = await site.command([...args, '-o', 'json'])
  if (code === 0) return JSON.parse(stdout) as T
  throw new StepFailed(`homeregion ${args[0] ?? ''} ended with ${code ?? 'a signal'}: ${reasonIn(stdout, stderr)}`)
}

/** The same, but null where it was refused for the one reason that is expected. */
export async function tried<T>(
  site: DrillSite,
  args: readonly string[],
  about: { readonly unless: ErrorCode; readonly heard?: (fact: string) => void },
): Promise<T | null> {
  const { code, stdout, stderr } = await site.command([...args, '-o', 'json'])
  if (code === 0) return JSON.parse(stdout) as T
  const error = errorIn(stderr)
  if (error?.code === about.unless) {
    about.heard?.(error.fact)
    return null
  }
  throw new StepFailed(`homeregion ${args[0] ?? ''} ended with ${code ?? 'a signal'}: ${reasonIn(stdout, stderr)}`)
}

type Said = { readonly code: string; readonly fact: string; readonly state: string | null }

function errorIn(stderr: string): Said | null {
  const line = stderr
    .split('\n')
    .reverse()
    .find(text => text.startsWith('{"error":'))
  return line === undefined ? null : (JSON.parse(line) as { readonly error: Said }).error
}

/** What a run's end says in JSON, or the coded error, or the last line. */
function reasonIn(stdout: string, stderr: string): string {
  const error = errorIn(stderr)
  if (error !== null) return [error.fact, error.state].filter(text => text !== null).join('; ')
  const last = [stdout.trim(), stderr.trim()].find(text => text !== '') ?? 'it said nothing'
  return last.split('\n').at(-1)?.slice(0, 500) ?? ''
}
