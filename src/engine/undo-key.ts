import type { BoundaryRow } from '../domain/boundary.ts'
import { HomeregionError, isHomeregionError } from '../domain/errors.ts'
import type { OwnershipChange } from '../domain/journal.ts'
import { showKey } from '../domain/key.ts'
import { type OwnershipRecord, resumeTransition } from '../domain/ownership.ts'
import { announceOwner } from './actions/activate.ts'
import { liftRegionFences, requireOwnFences } from './actions/fence-region.ts'
import { isContradiction, requireTargetClosed } from './contradiction.ts'
import { isMoved, type KeyMove, refresh, take } from './key-move.ts'

/** An undo has its own deadline: it is not the step's time that counts any more, it is the write stop. */
const UNDO_DEADLINE_MS = 30_000
const RETRY_PAUSE_MS = 250

/**
 * Takes the key back to its source and proves it: the control plane decides first (a fenced key only under a new epoch), then the source's
 * boundary is opened, then a write as each writer is admitted. Repeated until the deadline.
 * @returns false when the key turned out to be the target's already: then there is only forward.
 * @throws what stood in the way at the deadline; the caller says `needs-human`
 */
export async function undoKey(key: KeyMove): Promise<boolean> {
  const { engine } = key
  const started = engine.clock.monotonicMs()
  for (;;) {
    try {
      return await tryUndo(key)
    } catch (error) {
      if (
        isContradiction(error) ||
        isHomeregionError(error, 'superseded') ||
        isHomeregionError(error, 'epoch-moved') ||
        isHomeregionError(error, 'run-leased') ||
        // Waiting does not settle whose fence it is.
        isHomeregionError(error, 'fence-asked-again')
      )
        throw error
      if (engine.clock.monotonicMs() - started > UNDO_DEADLINE_MS) throw error
      await engine.clock.sleep(RETRY_PAUSE_MS)
    }
  }
}

async function tryUndo(key: KeyMove): Promise<boolean> {
  const { engine, journal, move } = key
  await key.pending.catch(() => undefined)
  // A new token first: whatever this run or a former one still has under way is refused from here on, so what is read stays true.
  await journal.retake()
  await refresh(key)
  if (isMoved(move, key.record)) return false
  const source = engine.region(move.source)
  const row = await source.claim(move.key, { homeRegion: move.source, epoch: move.epoch }, journal.lease().token)
  // A target that does not answer cannot be asked; it was not opened by this run, whose record says so.
  const target = engine.policy.shared
    ? null
    : await engine
        .region(move.target)
        .read(move.key)
        .catch(() => null)
  requireTargetClosed(key, target)
  // Before anything says that the source may write.
  await requireOwnFences(key)
  // One commit each: the record of a key moves by one row of its log at a time.
  // Dying after the last one: the record says the source may write, its boundary still refuses. `abort` again opens it.
  for (const transition of wayBack(key.record, row))
    take(key, await journal.commit('undo', { ownership: [{ transition, expected: key.record }] }))
  await liftRegionFences(key)
  await engine.fault('undo:lifted')
  await source.open(move.key, key.record.epoch, journal.lease().token)
  await engine.fault('undo:opened')
  await proveOpen(key)
  await announceOwner(key)
  await engine.fault('undo:announced')
  return true
}

/** The boundary is believed before the record: a fence whose answer was lost leaves a key that is FENCED there and DRAINING on record. */
function wayBack(record: OwnershipRecord, row: BoundaryRow): readonly OwnershipChange['transition'][] {
  const fenced = record.state === 'DRAINING' && row.state === 'FENCED'
  const back = resumeTransition(fenced ? 'FENCED' : record.state)
  return [...(fenced ? (['fence'] as const) : []), ...(back === null ? [] : [back as OwnershipChange['transition']])]
}

async function proveOpen(key: KeyMove): Promise<void> {
  const source = key.engine.region(key.move.source)
  const epoch = key.record.epoch
  const [row, probes] = await Promise.all([source.read(key.move.key), source.probeWrites(key.move.key, epoch, 'read committed')])
  const refused = probes.filter(p => p.outcome !== 'admitted')
  if (row?.writable === true && row.epoch === epoch && refused.length === 0) return
  throw new HomeregionError('needs-human', {
    fact: `${showKey(key.move.key)} was given back to ${key.move.source}, but a write there is not admitted yet: ${refused.map(p => `${p.writer} on ${p.table}: ${p.message}`).join('; ') || `the boundary says ${row?.state ?? 'nothing'}`}`,
  })
}
