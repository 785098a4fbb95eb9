import { HomeregionError } from '../../domain/errors.ts'
import type { Fence, FenceStatus } from '../../domain/fence.ts'
import { wisher } from '../../domain/fence-wish.ts'
import { showKey } from '../../domain/key.ts'
import type { Step } from '../../domain/runbook.ts'
import type { Engine } from '../context.ts'
import type { KeyMove } from '../key-move.ts'
import type { Action } from './action.ts'

/**
 * Fences of the whole source region, applied by the last key that leaves it. While another key is at home there nothing is done, since it
 * would be stopped with this one; the step then says so.
 */
export const fenceRegion: Action<'fence-region'> = {
  kind: 'fence-region',
  plan: (move, use) => `fence ${move.source} as a whole (${use.fences.join(', ')}), once no other key is at home there`,
  apply: async (key, step, use) => {
    const { engine, journal, move } = key
    const staying = await othersAtHome(key)
    if (staying.length > 0) {
      engine.operator.report({
        type: 'note',
        text: `${step.id}: ${move.source} was not fenced as a whole: ${staying.map(showKey).join(', ')} ${staying.length === 1 ? 'is' : 'are'} at home there`,
      })
      return
    }
    await key.pending
    const id = engine.newId()
    await journal.commit('fence-region-start', { starts: [{ id, key: move.key, step: step.id, action: 'fence-region' }] })
    const applied: Record<string, readonly string[]> = {}
    try {
      for (const fence of use.fences.map(name => fenceOf(engine, move.source, name))) {
        // Noted before it is applied: what a failure leaves half-done has to be lifted too.
        key.subject.standing.push({ region: move.source, name: fence.name })
        const cause = { reason: `step ${step.id} of run ${journal.runId}`, by: engine.holder.user, runId: journal.runId }
        applied[fence.name] = await fence.apply(cause)
        await engine.fault(`fence-region:${fence.name}`)
      }
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error)
      journal.buffer({ ends: [{ id, outcome: 'failed', result: { applied, error: text } }] })
      throw error
    }
    journal.buffer({ ends: [{ id, outcome: 'done', result: { applied } }] })
  },
  verify: async key => {
    const fences = regionFences(key)
    const states = await Promise.all(fences.map(async fence => await fence.status()))
    if (states.some(s => s.state === 'unknown')) return 'unknown'
    // A person's wish stands before a run's on record, so that it cannot be told whether this run's was added to it; the fence stands.
    const wanted = [key.journal.runId, null]
    return states.every(s => s.state === 'applied' && s.cause !== null && wanted.includes(s.cause.runId)) ? 'done' : 'not-done'
  },
  undo: liftRegionFences,
}

/** Keys of no concern to this step but at home in the source: up to two of them, by the control plane. */
async function othersAtHome(key: KeyMove): Promise<readonly string[]> {
  const records = await key.engine.controlPlane.listOwnership({ homeRegion: key.move.source, limit: 3 })
  return records.filter(r => r.key !== key.move.key).map(r => r.key)
}

function fenceOf(engine: Engine, region: string, name: string): Fence {
  const found = engine.fences(region).find(f => f.name === name)
  if (found !== undefined) return found
  throw new HomeregionError('unknown-fence', {
    fact: `${region} has no fence named ${JSON.stringify(name)}; it has ${engine
      .fences(region)
      .map(f => f.name)
      .join(', ')}`,
    next: 'homeregion config show',
  })
}

/** The fences that this key's runbook may put on its source. */
function regionFences(key: KeyMove): readonly Fence[] {
  const names = key.steps.flatMap((step: Step) => (step.action?.kind === 'fence-region' ? step.action.fences : []))
  return [...new Set(names)].map(name => fenceOf(key.engine, key.move.source, name))
}

/** What an earlier process of this run put on the source, found by looking: half-done ones too. */
export async function findStanding(key: KeyMove): Promise<void> {
  for (const fence of regionFences(key)) {
    const { state, cause } = await fence.status()
    // One that cannot be read may stand.
    const mine = state === 'unknown' || (state !== 'lifted' && cause?.runId === key.journal.runId)
    const known = key.subject.standing.some(s => s.region === fence.region && s.name === fence.name)
    if (mine && !known) key.subject.standing.push({ region: fence.region, name: fence.name })
  }
}

/**
 * A fence of the source that somebody else wants to stand is not this run's to lift, also where the run had applied it first; and while it stands
 * the source must not be called writable.
 * @throws `fence-asked-again`
 */
export async function requireOwnFences(key: KeyMove): Promise<void> {
  for (const fence of regionFences(key)) refuseOthers(key, fence, await fence.status())
}

function refuseOthers({ journal, move }: KeyMove, fence: Fence, { state, since, cause }: FenceStatus): void {
  if (state === 'lifted' || cause === null || cause.runId === journal.runId) return
  throw new HomeregionError('fence-asked-again', {
    fact: `fence ${fence.name} of ${fence.region} is ${state} since ${since ?? '?'} for ${wisher(cause)}: this run leaves it`,
    state: `${move.source} is fenced as a whole.`,
    next: `homeregion fence lift ${fence.region} --fence ${fence.name} --reason …, once it may go; then homeregion abort ${journal.runId}`,
  })
}

/** Before the source may write again: last applied, first lifted. */
export async function liftRegionFences(key: KeyMove): Promise<void> {
  const { engine, journal, subject, move } = key
  for (const { region, name } of subject.standing.filter(s => s.region === move.source).reverse()) {
    const fence = fenceOf(engine, region, name)
    const seen = await fence.status()
    if (seen.state === 'lifted') continue
    refuseOthers(key, fence, seen)
    if (seen.cause === null)
      throw new HomeregionError(
        'outcome-unknown',
        { fact: `fence ${name} of ${region} could not be read: ${seen.holds.join('; ')}`, state: 'It may stand.' },
        { retriable: true },
      )
    // The record itself refuses where somebody asked for it since that look.
    const lifted = await fence.lift({ reason: `run ${journal.runId} goes back`, by: engine.holder.user, runId: journal.runId }, seen.asked)
    engine.operator.report({ type: 'note', text: `${region}: fence ${name} lifted: ${lifted.join('; ')}` })
  }
}
