import type { BoundaryRow } from '../domain/boundary.ts'
import { HomeregionError } from '../domain/errors.ts'
import { showKey } from '../domain/key.ts'
import { isMoved, type KeyMove } from './key-move.ts'

/**
 * The target's boundary calls itself home although the record does not. Somebody opened it past the control plane: whatever this run did next,
 * two regions could write, so it does nothing and says so.
 * @throws `needs-human`
 */
export function requireTargetClosed(key: KeyMove, row: BoundaryRow | null): void {
  const { move } = key
  if (key.engine.policy.shared || row === null || isMoved(move, key.record)) return
  if (row.homeRegion !== move.target || (row.state !== 'ACTIVE' && !row.writable)) return
  throw new HomeregionError(
    'needs-human',
    {
      fact: `${move.target}'s boundary has ${showKey(move.key)} as its own (${row.state}, epoch ${row.epoch}), the control plane does not (${key.record.state}, home ${key.record.homeRegion}, epoch ${key.record.epoch}): it was opened past the control plane`,
      state: `Nothing more was changed; ${move.target} may be writing it.`,
      next: `homeregion run show ${key.journal.runId}`,
    },
    { fields: { contradiction: true, key: move.key, region: move.target } },
  )
}

export function isContradiction(error: unknown): boolean {
  return error instanceof HomeregionError && error.fields['contradiction'] === true
}
