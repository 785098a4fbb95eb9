import { createHash } from 'node:crypto'
import { HomeregionError } from '../domain/errors.ts'
import { showKey } from '../domain/key.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { PlannedMove } from '../domain/plan.ts'
import type { Step } from '../domain/runbook.ts'
import type { CheckSubject, Engine, KeySubject } from './context.ts'
import type { RunJournal } from './run-journal.ts'

/** How far the side effects of one key have gone in this process: the floor below which nothing may be assumed. */
export type Reached = 'nothing' | 'drain-sent' | 'fence-sent' | 'activation-sent' | 'activated'

/** One key on its way. Mutable on purpose: it is the engine's only picture of the key, and it is corrected from the authority. */
export type KeyMove = {
  readonly engine: Engine
  readonly journal: RunJournal
  readonly move: PlannedMove
  readonly steps: readonly Step[]
  readonly subject: KeySubject
  readonly barrierEventId: string
  record: OwnershipRecord
  reached: Reached
  /** When the drain was sent, by the engine's monotonic clock; null while it was not, by this process. */
  drainSentMs: number | null
  /** From sending the drain to the answer that the target is open: the write stop is shorter. */
  stoppedMs: number | null
  /** Aborted when the target has caught up, or nobody waits for it any more. */
  readonly caughtUp: AbortController
  /** Commits that need not be waited for until the next write. */
  pending: Promise<void>
  /** The fence's attempt, once its start is committed and until the fence is sent. */
  fenceAttempt: string | null
}

export function createKeyMove(
  engine: Engine,
  journal: RunJournal,
  steps: readonly Step[],
  subject: CheckSubject,
  move: PlannedMove,
  record: OwnershipRecord,
): KeyMove {
  const barrierEventId = barrierIdOf(journal.runId, move)
  return {
    engine,
    journal,
    move,
    steps,
    barrierEventId,
    drainSentMs: null,
    stoppedMs: null,
    caughtUp: new AbortController(),
    record,
    reached: 'nothing',
    pending: Promise.resolve(),
    fenceAttempt: null,
    subject: { ...subject, move, barrierEventId, memory: new Map() },
  }
}

/** The same run, key and epoch always have the same barrier, so a repeated fence writes no second one. */
export function barrierIdOf(runId: string, move: PlannedMove): string {
  const hex = createHash('sha256')
    .update(JSON.stringify([runId, move.key, move.epoch]))
    .digest('hex')
  // Shaped as a version 8 UUID (RFC 9562: vendor-specific), since outboxes commonly type event ids as uuid.
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

/** True once the control plane says that the target is home under this run's epoch. */
export function isMoved(move: PlannedMove, record: OwnershipRecord): boolean {
  return record.homeRegion === move.target && record.epoch === move.epoch + 1
}

export function changedElsewhere(move: PlannedMove, record: OwnershipRecord, runId: string): boolean {
  return !isMoved(move, record) && record.epoch !== move.epoch && record.runId !== runId
}

/** Reads the authority again and corrects the picture. @throws `epoch-moved` when the key was changed by something else than this run */
export async function refresh(key: KeyMove): Promise<OwnershipRecord> {
  const [record] = await key.engine.controlPlane.ownership([key.move.key])
  if (record === undefined)
    throw new HomeregionError('unknown-key', { fact: `${showKey(key.move.key)} is no longer registered in the control plane` })
  if (changedElsewhere(key.move, record, key.journal.runId))
    throw new HomeregionError('epoch-moved', {
      fact: `${showKey(key.move.key)} is at epoch ${record.epoch} (${record.state}, home ${record.homeRegion}), this run expected epoch ${key.move.epoch}`,
      state: 'This run changed nothing more.',
      next: `homeregion status ${showKey(key.move.key)}`,
    })
  key.record = record
  return record
}

/** Corrects the picture from what a commit returned. */
export function take(key: KeyMove, records: readonly OwnershipRecord[]): void {
  key.record = records.findLast(r => r.key === key.move.key) ?? key.record
}
