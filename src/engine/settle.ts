import { HomeregionError } from '../domain/errors.ts'
import type { Attempt, AttemptEnd, OwnershipChange } from '../domain/journal.ts'
import { showKey } from '../domain/key.ts'
import type { PlannedMove } from '../domain/plan.ts'
import type { ActionKind, Step } from '../domain/runbook.ts'
import { findStanding } from './actions/fence-region.ts'
import { actionOf } from './actions/table.ts'
import type { CheckSubject, Engine } from './context.ts'
import { createKeyMove, isMoved, type KeyMove, refresh, take } from './key-move.ts'
import type { RunJournal } from './run-journal.ts'

export type SettledKey = { readonly move: PlannedMove; readonly key: KeyMove; readonly doneSteps: ReadonlySet<string> }

/**
 * Finds out where a key of an interrupted run stands. The new token is shown to both boundaries first, so that a late request of the
 * former operator is refused from here on; then every attempt without an outcome is settled by looking, never by repeating it.
 * @throws `outcome-unknown` when an author's own action was started and nothing can tell whether it finished
 */
export async function settleKey(
  engine: Engine,
  journal: RunJournal,
  steps: readonly Step[],
  subject: CheckSubject,
  move: PlannedMove,
): Promise<SettledKey> {
  const [record] = await engine.controlPlane.ownership([move.key])
  if (record === undefined)
    throw new HomeregionError('unknown-key', { fact: `${showKey(move.key)} is no longer registered in the control plane` })
  const key = createKeyMove(engine, journal, steps, subject, move, record)
  const token = journal.lease().token
  const owner = { homeRegion: record.homeRegion, epoch: record.epoch }
  await engine.region(move.source).claim(move.key, owner, token)
  if (!engine.policy.shared) await engine.region(move.target).claim(move.key, owner, token)
  await engine.fault('settle:claimed')
  await findStanding(key)
  // Read only now: what the former operator had under way either landed before the claims, or never will.
  await refresh(key)
  const attempts = (await engine.controlPlane.attempts(journal.runId)).filter(a => a.key === move.key)
  const ends = await Promise.all(attempts.filter(a => a.outcome === null).map(a => settleAttempt(key, a)))
  const fenced = (await engine.region(move.source).read(move.key))?.state === 'FENCED' && key.record.state === 'DRAINING'
  const ownership: readonly OwnershipChange[] = fenced ? [{ transition: 'fence', expected: key.record }] : []
  if (ends.length > 0 || fenced) take(key, await journal.commit('settle', { ends, ownership }))
  key.reached = isMoved(move, key.record)
    ? 'activated'
    : key.record.state === 'FENCED' || key.record.state === 'CATCH_UP'
      ? 'fence-sent'
      : key.record.state === 'DRAINING'
        ? 'drain-sent'
        : 'nothing'
  const doneSteps = new Set(attempts.filter(a => a.outcome === 'done').map(a => a.step))
  return { move, key, doneSteps }
}

async function settleAttempt(key: KeyMove, attempt: Attempt): Promise<AttemptEnd> {
  const found = await actionOf(attempt.action as ActionKind).verify(key)
  if (found === 'unknown')
    throw new HomeregionError('outcome-unknown', {
      fact: `step ${attempt.step} (${attempt.action}) was started at ${attempt.startedAt} and never reported back; nothing can tell whether it finished`,
      state: `${showKey(key.move.key)} is ${key.record.state}; nothing was repeated.`,
      next: `homeregion abort ${attempt.runId}`,
    })
  return { id: attempt.id, outcome: found === 'done' ? 'done' : 'failed', result: { settledBy: 'probe', found } }
}
