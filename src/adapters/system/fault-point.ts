import type { FaultPoint } from '../../domain/ports.ts'

/**
 * A place where a crash test may stop the process: HOMEREGION_FAULT="kill@N" ends it with SIGKILL at the N-th point it passes (from 1),
 * "stop@NAME" suspends it with SIGSTOP at the point of that name, "count" prints each point's name on stderr. Otherwise nothing happens.
 */
export function createFaultPoint(specification: string | undefined): FaultPoint {
  if (specification === undefined || specification === '') return () => Promise.resolve()
  const [verb, where] = specification.split('@')
  let passed = 0
  return async name => {
    passed += 1
    if (verb === 'count') process.stderr.write(`fault-point ${passed} ${name}\n`)
    if (where !== String(passed) && where !== name) return
    if (verb === 'kill') process.kill(process.pid, 'SIGKILL')
    if (verb === 'stop') process.kill(process.pid, 'SIGSTOP')
    // Both signals arrive asynchronously; nothing of the run may happen before they do.
    await new Promise(resolve => setTimeout(resolve, verb === 'kill' ? 60_000 : 50))
  }
}
