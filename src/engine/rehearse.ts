import { OWNERSHIP_ACTIONS } from '../domain/runbook.ts'
import { observe } from './checks/observe.ts'
import type { KeyMove } from './key-move.ts'

/** Asked of a key that is written: the first would make its writers queue, the other is about the epoch to come. */
const NOT_REHEARSED = ['writes-in-flight', 'target-accepts-write']

/**
 * Opens the sessions of both regions and looks once at everything the key's gates will look at. What is seen is thrown away, since the key is
 * still being written: what counts is that connections, plans and code are ready before writing stops.
 */
export async function rehearse(key: KeyMove): Promise<void> {
  const { engine, move } = key
  await Promise.all([engine.region(move.source).warm(), engine.region(move.target).warm()])
  const gates = key.steps.filter(s => s.action === null || OWNERSHIP_ACTIONS.some(kind => kind === s.action?.kind)).flatMap(s => s.gate)
  const uses = gates.filter(use => !NOT_REHEARSED.includes(use.check))
  const subject = { ...key.subject, memory: new Map<string, unknown>() }
  await Promise.all(uses.map(use => observe(engine, subject, use, { runId: key.journal.runId, step: 'rehearsal', attemptId: null })))
}
