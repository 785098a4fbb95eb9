import { showKey } from '../../domain/key.ts'
import { type KeyMove, take } from '../key-move.ts'
import type { Action } from './action.ts'

export const fence: Action<'fence'> = {
  kind: 'fence',
  plan: move => `fence ${showKey(move.key)} in ${move.source}, write the barrier event, and prove it with refused writes`,
  apply: async (key, step) => {
    const { engine, journal, move } = key
    const id = engine.newId()
    await key.pending
    await journal.commit('fence-start', { starts: [{ id, key: move.key, step: step.id, action: 'fence' }] })
    key.reached = 'fence-sent'
    const row = await engine.region(move.source).fence(move.key, move.epoch, journal.lease().token, key.barrierEventId)
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
    return row !== null && row.epoch === key.move.epoch && row.state === 'FENCED' ? 'done' : 'not-done'
  },
  // Taking a fence back is ownership's affair: the source may write again only under a new epoch (undo-key.ts).
  undo: null,
}

/** The fence is proved: the target may catch up. */
export function beginCatchUp(key: KeyMove): void {
  const before = key.pending
  key.pending = record(key, async () => {
    await before
    return key.record.state === 'FENCED'
      ? await key.journal.commit('catch-up', { ownership: [{ transition: 'catch-up', expected: key.record }] })
      : []
  })
}

function record(key: KeyMove, work: () => ReturnType<KeyMove['journal']['commit']>): Promise<void> {
  const done = work().then(records => take(key, records))
  // Awaited before the next write; until then a rejection must not count as unhandled.
  done.catch(() => undefined)
  return done
}
