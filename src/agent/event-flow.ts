import type { PartitionEnd } from '../domain/ports.ts'

export type Unpublished = { readonly count: number; readonly oldestAgeMs: number | null }
export type Lag = { readonly events: number; readonly oldestMs: number | null }

/** How far one region's events have come, from what was seen of its topic over time. Pure but for its memory. */
export interface EventFlow {
  /** Ends of the topic at a moment, with the events that had not left the outbox just before. */
  saw(atMs: number, ends: readonly Pick<PartitionEnd, 'partition' | 'end'>[], unpublished: Unpublished): void
  /** What a group has not read at that moment. null: it never committed, which is no evidence. */
  lag(atMs: number, ends: readonly PartitionEnd[]): Lag | null
  /** Most events per second in the last minute; null before there was a second to measure. */
  highestPerSecond(): number | null
}

const WINDOW_MS = 60_000
const RATE_MS = 1000
// A lag of an hour at one look a second; beyond it every other look is forgotten, which makes ages longer, never shorter.
const MOST_LOOKS = 3600

type Look = { readonly atMs: number; readonly ends: ReadonlyMap<number, bigint>; readonly total: number; readonly writtenBeforeMs: number }

export function createEventFlow(): EventFlow {
  let looks: Look[] = []
  let rates: { readonly atMs: number; readonly perSecond: number }[] = []
  return {
    saw: (atMs, ends, unpublished) => {
      const byPartition = new Map(ends.map(e => [e.partition, BigInt(e.end)]))
      const total = [...byPartition.values()].reduce((sum, end) => sum + Number(end), unpublished.count)
      // A topic that was made anew begins another history.
      const last = looks.at(-1)
      if (last !== undefined && [...last.ends].some(([p, end]) => (byPartition.get(p) ?? 0n) < end)) {
        looks = []
        rates = []
      }
      const earlier = looks.findLast(l => atMs - l.atMs >= RATE_MS)
      if (earlier !== undefined)
        rates.push({ atMs, perSecond: Math.max(0, Math.ceil(((total - earlier.total) * 1000) / (atMs - earlier.atMs))) })
      rates = rates.filter(r => atMs - r.atMs <= WINDOW_MS)
      // Whatever comes later was committed after this: the oldest that had not left the outbox came first.
      looks.push({ atMs, ends: byPartition, total, writtenBeforeMs: atMs - (unpublished.oldestAgeMs ?? 0) })
      if (looks.length > MOST_LOOKS) looks = looks.filter((_, i) => i % 2 === 0)
    },
    lag: (atMs, ends) => {
      if (ends.some(e => e.committed === null && BigInt(e.end) > 0n)) return null
      const behind = ends.filter(e => BigInt(e.end) > BigInt(e.committed ?? 0))
      const events = behind.reduce((sum, e) => sum + Number(BigInt(e.end) - BigInt(e.committed ?? 0)), 0)
      if (events === 0) return { events: 0, oldestMs: null }
      // What is not read now was written after the last look at which all that was there has been read since.
      const caughtUp = looks.findLast(l => behind.every(e => (l.ends.get(e.partition) ?? 0n) <= BigInt(e.committed ?? 0)))
      return { events, oldestMs: caughtUp === undefined ? null : Math.ceil(atMs - caughtUp.writtenBeforeMs) }
    },
    highestPerSecond: () => (rates.length === 0 ? null : Math.max(...rates.map(r => r.perSecond))),
  }
}
