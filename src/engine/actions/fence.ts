import type { BoundaryRow } from '../../domain/boundary.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { showKey } from '../../domain/key.ts'
import type { Step } from '../../domain/runbook.ts'
import { type KeyMove, take } from '../key-move.ts'
import type { Action } from './action.ts'

export const fence: Action<'fence'> = {
  kind: 'fence',
  plan: move => `fence ${showKey(move.key)} in ${move.source}, write the barrier event, and prove it with refused writes`,
  apply: async (key, step) => {
    const { engine, journal, move } = key
    await key.pending
    const id = key.fenceAttempt ?? (await start(key, step))
    key.fenceAttempt = null
    key.reached = 'fence-sent'
    const row = await engine.region(move.source).fence(move.key, move.epoch, journal.lease().token, key.barrierEventId)
    requireOwnBarrier(key, row)
    await engine.fault('fence:applied')
    // The commit runs beside the first look at the gate; the next write waits for it. Dying before it leaves a fenced key that the record
    // calls DRAINING: nobody writes, and resume and abort both read the boundary before they believe the record.
    key.pending = record(key, () =>
      journal.commit('fence-end', {
        ends: [{ id, outcome: 'done', result: { ...row } }],
        ownership: key.record.state === 'DRAINING' ? [{ transition: 'fence', expected: key.record }] : [],
      }),
    )
  },
  verify: async key => {
    const row = await key.engine.region(key.move.source).read(key.move.key)
    return row !== null && row.epoch === key.move.epoch && row.state === 'FENCED' && row.barrierEventId === key.barrierEventId
      ? 'done'
      : 'not-done'
  },
  // Taking a fence back is ownership's affair: the source may write again only under a new epoch (undo-key.ts).
  undo: null,
}

/**
 * A key that is fenced already answers with the barrier of the fence in force. One that this run did not write was put there by something this
 * run knows nothing about: what it proves is not known, so nothing is built on it and nothing is taken back.
 */
function requireOwnBarrier(key: KeyMove, row: BoundaryRow): void {
  if (row.barrierEventId === key.barrierEventId) return
  const { move } = key
  throw new HomeregionError(
    'needs-human',
    {
      fact: `${showKey(move.key)} is ${row.state} at ${move.source} with barrier ${row.barrierEventId ?? 'none'}, which is not this run's (${key.barrierEventId})`,
      state: 'It was left as it is: nobody writes it.',
      next: `homeregion run show ${key.journal.runId}`,
    },
    { fields: { key: move.key, barrierEventId: row.barrierEventId, expected: key.barrierEventId } },
  )
}

/**
 * Commits the fence's `started` beside the gate that stands before it, since every round trip here is paid in write downtime. Nothing is
 * sent before the gate has opened; where it does not, the attempt ends as failed, and a resume finds by looking that it was not done.
 */
export function startFenceEarly(key: KeyMove, step: Step): void {
  const before = key.pending
  key.pending = before.then(async () => {
    key.fenceAttempt = await start(key, step)
  })
  key.pending.catch(() => undefined)
}

/** A fence that was announced to the journal and not sent. */
export async function endUnsentFence(key: KeyMove): Promise<void> {
  await key.pending.catch(() => undefined)
  if (key.fenceAttempt === null) return
  key.journal.buffer({ ends: [{ id: key.fenceAttempt, outcome: 'failed', result: { sent: false } }] })
  key.fenceAttempt = null
}

async function start(key: KeyMove, step: Step): Promise<string> {
  const id = key.engine.newId()
  await key.journal.commit('fence-start', { starts: [{ id, key: key.move.key, step: step.id, action: 'fence' }] })
  return id
}

/** A catch-up that is over sooner is recorded with the activation: its own commit would be paid in write downtime. */
const CATCH_UP_RECORD_AFTER_MS = 100

/** The fence is proved: the target may catch up. Recorded for everybody to see when it takes longer than a moment. */
export function beginCatchUp(key: KeyMove): void {
  const before = key.pending
  key.pending = record(key, async () => {
    await before
    await key.engine.clock.sleep(CATCH_UP_RECORD_AFTER_MS, key.caughtUp.signal)
    if (key.caughtUp.signal.aborted || key.record.state !== 'FENCED') return []
    return await key.journal.commit('catch-up', { ownership: [{ transition: 'catch-up', expected: key.record }] })
  })
}

function record(key: KeyMove, work: () => ReturnType<KeyMove['journal']['commit']>): Promise<void> {
  const done = work().then(records => take(key, records))
  // Awaited before the next write; until then a rejection must not count as unhandled.
  done.catch(() => undefined)
  return done
}
