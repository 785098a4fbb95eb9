import { HomeregionError } from '../domain/errors.ts'
import type { AttemptEnd } from '../domain/journal.ts'
import { wasHandedOver } from './forced-activation.ts'
import type { ForcedMove } from './forced-move.ts'

/** What an earlier process left without an outcome. @returns true when its commit had arrived: the keys are the target's */
export async function settleForced(move: ForcedMove): Promise<boolean> {
  const { engine, journal } = move
  const handedOver = await wasHandedOver(move)
  const open = (await engine.controlPlane.attempts(journal.runId)).filter(a => a.outcome === null)
  const strange = open.find(a => a.action !== 'isolate' && a.action !== 'activate')
  if (strange !== undefined)
    throw new HomeregionError('outcome-unknown', {
      fact: `step ${strange.step} (${strange.action}) was started at ${strange.startedAt} and never reported back; nothing can tell whether it finished`,
      state: handedOver ? `The keys are ${move.target}'s; nothing was repeated.` : 'Nothing was handed over; nothing was repeated.',
      next: `homeregion abort ${journal.runId}`,
    })
  move.openAttempt = handedOver ? (open.find(a => a.action === 'activate')?.id ?? null) : null
  // Fencing from outside can be done again; that it was begun is all that is known.
  const ends: readonly AttemptEnd[] = open
    .filter(a => a.id !== move.openAttempt)
    .map(({ id }) => ({ id, outcome: 'unknown', result: { settledBy: 'resume' } }))
  if (ends.length > 0) await journal.commit('settle', { ends })
  return handedOver
}
