import { showKey } from '../../domain/key.ts'
import { type KeyMove, take } from '../key-move.ts'
import type { Action } from './action.ts'

export const drain: Action<'drain'> = {
  kind: 'drain',
  plan: move => `admit no new writes of ${showKey(move.key)} in ${move.source}; writes in flight finish`,
  apply: async (key, step) => {
    const { engine, journal, move } = key
    const id = engine.newId()
    const starts = [{ id, key: move.key, step: step.id, action: 'drain' }]
    // If the process dies after this commit, the key is DRAINING on record and still written at the source: resume drains, abort resumes.
    take(
      key,
      await journal.commit('drain-start', {
        starts,
        ownership: key.record.state === 'ACTIVE' ? [{ transition: 'drain', expected: key.record, target: move.target }] : [],
      }),
    )
    key.reached = 'drain-sent'
    key.drainSentMs = engine.clock.monotonicMs()
    const row = await engine.region(move.source).drain(move.key, move.epoch, journal.lease().token)
    await engine.fault('drain:applied')
    journal.buffer({ ends: [{ id, outcome: 'done', result: { ...row } }] })
  },
  verify: async key => {
    const row = await key.engine.region(key.move.source).read(key.move.key)
    return row !== null && row.epoch === key.move.epoch && !row.writable && row.state !== 'ACTIVE' ? 'done' : 'not-done'
  },
  undo: reopenDrained,
}

/** Opens a drained source under the same epoch. The boundary refuses it once the key is fenced or a newer run token was seen. */
export async function reopenDrained(key: KeyMove): Promise<void> {
  await key.engine.region(key.move.source).open(key.move.key, key.move.epoch, key.journal.lease().token)
}
