import type { ServiceEvent } from './envelope.ts'

/** An event with the place it was read from. */
export type ReceivedEvent = {
  readonly event: ServiceEvent
  /** Which feed read it; one feed per other region. */
  readonly feed: number
  /** Assignment of the feed it was read under: later assignments read again what was not committed. */
  readonly generation: number
  readonly partition: number
  readonly offset: bigint
}

/**
 * `gap`: an earlier version of the aggregate has not arrived. `refused`: the boundary does not admit it here, now.
 * `diverged`: this region holds that version already, from another event. `waiting`: an event before it is held.
 * `failed`: the database refused it for another reason.
 */
export type HoldReason = 'gap' | 'refused' | 'diverged' | 'waiting' | 'failed'

export type HeldEvent = ReceivedEvent & { readonly reason: HoldReason; readonly heldAtMs: number }

type HeldKey = { events: HeldEvent[]; retryAtMs: number; retryMs: number }

export const FIRST_RETRY_MS = 20
const LAST_RETRY_MS = 2000

/**
 * Events that were read and could not be applied, by key. They live in memory only: the offsets of their partitions are not
 * committed beyond them, so a restart reads them again.
 */
export type HeldEvents = {
  has(key: string): boolean
  /** In the order they were held. */
  of(key: string): readonly HeldEvent[]
  /** Puts one in, or renews its reason; a second delivery of the same event is the same event. */
  hold(received: ReceivedEvent, reason: HoldReason, nowMs: number): void
  release(received: ReceivedEvent): void
  /** Keys to be tried again at `nowMs`; each wait doubles. */
  due(nowMs: number): readonly string[]
  /** Forgets what a feed read before its partitions were assigned anew. */
  forget(feed: number): void
  /** Lowest offset that is held of a partition, or null. */
  lowest(feed: number, partition: number): bigint | null
  counts(): Readonly<Record<HoldReason, number>>
  readonly size: number
}

export function createHeldEvents(): HeldEvents {
  const keys = new Map<string, HeldKey>()
  const all = () => [...keys.values()].flatMap(k => k.events)

  return {
    has: key => keys.has(key),
    of: key => keys.get(key)?.events ?? [],
    hold: (received, reason, nowMs) => {
      const held = keys.get(received.event.key) ?? { events: [], retryAtMs: nowMs + FIRST_RETRY_MS, retryMs: FIRST_RETRY_MS }
      keys.set(received.event.key, held)
      const at = held.events.findIndex(e => e.event.eventId === received.event.eventId)
      const earlier = held.events[at]
      if (earlier === undefined) held.events.push({ ...received, reason, heldAtMs: nowMs })
      else held.events[at] = { ...earlier, reason }
    },
    release: received => {
      const held = keys.get(received.event.key)
      if (held === undefined) return
      held.events = held.events.filter(e => e.event.eventId !== received.event.eventId)
      if (held.events.length === 0) keys.delete(received.event.key)
    },
    due: nowMs =>
      [...keys].flatMap(([key, held]) => {
        if (held.retryAtMs > nowMs) return []
        held.retryMs = Math.min(held.retryMs * 2, LAST_RETRY_MS)
        held.retryAtMs = nowMs + held.retryMs
        return [key]
      }),
    forget: feed => {
      for (const [key, held] of keys) {
        held.events = held.events.filter(e => e.feed !== feed)
        if (held.events.length === 0) keys.delete(key)
      }
    },
    lowest: (feed, partition) =>
      all()
        .filter(e => e.feed === feed && e.partition === partition)
        .reduce<bigint | null>((low, e) => (low === null || e.offset < low ? e.offset : low), null),
    counts: () => {
      const counts = { gap: 0, refused: 0, diverged: 0, waiting: 0, failed: 0 }
      for (const e of all()) counts[e.reason] += 1
      return counts
    },
    get size() {
      return [...keys.values()].reduce((sum, k) => sum + k.events.length, 0)
    },
  }
}
