import type { Clock } from '../../src/domain/ports.ts'

/** Time goes on to the next moment that somebody waits for, once nobody has anything else to do. */
export function createVirtualClock() {
  let nowMs = 0
  const sleepers: { readonly atMs: number; readonly wake: () => void }[] = []
  const clock: Clock = {
    now: () => new Date(nowMs).toISOString(),
    monotonicMs: () => nowMs,
    sleep: (ms, signal) =>
      new Promise(wake => {
        sleepers.push({ atMs: nowMs + ms, wake })
        signal?.addEventListener('abort', () => wake())
      }),
  }
  const until = async <T>(work: Promise<T>): Promise<T> => {
    let ended = false
    const done = work.finally(() => {
      ended = true
    })
    for (;;) {
      await new Promise(resolve => setImmediate(resolve))
      if (ended) return await done
      const next = sleepers.sort((a, b) => a.atMs - b.atMs).shift()
      if (next === undefined) throw new Error('nobody waits for a moment, and nothing ends')
      nowMs = Math.max(nowMs, next.atMs)
      next.wake()
    }
  }
  return { clock, until }
}
