import { setTimeout as wait } from 'node:timers/promises'
import { type FeedMessage, type FeedProgress, startEventFeed } from '../adapters/kafka-region/event-feed.ts'
import type { KafkaConnection } from '../adapters/kafka-region/kafka-client.ts'
import { eventOf } from './envelope.ts'
import type { InboxStore } from './inbox-apply.ts'
import type { HeldEvents, HoldReason, ReceivedEvent } from './inbox-held.ts'
import { createInboxWorker } from './inbox-worker.ts'

/** The outbox topic of one other region, on its own broker. */
export type InboxSource = { readonly region: string; readonly connection: KafkaConnection; readonly topic: string }

export type InboxStats = {
  readonly applied: number
  readonly duplicates: number
  /** Events without effects here, barriers among them, of which the ids were recorded. */
  readonly recorded: number
  /** Events of an epoch that was over when their key came home here: kept in the boundary's quarantine, not applied. */
  readonly quarantined: number
  /** Messages without an envelope: not this service's. */
  readonly foreign: number
  readonly held: Readonly<Record<HoldReason, number>>
  readonly failures: number
  readonly lastError: string | null
}

type RunningFeed = { close(): Promise<void>; advance(): void }

export interface Inbox {
  stats(): InboxStats
  close(): Promise<void>
}

// Above this the feeds stop reading on: what is held must be looked at by a human anyway.
const HELD_LIMIT = 10_000
const RETRY_MS = 100
const RETRY_HELD_EVERY_MS = 20

/**
 * Reads the other regions' outbox topics and applies their events to this region's copy: each once, in order of version within
 * an aggregate. What cannot be applied is held and counted, never skipped: its offset is not committed.
 */
export function startInbox(options: {
  readonly groupId: string
  readonly sources: readonly InboxSource[]
  readonly store: InboxStore
  readonly held: HeldEvents
}): Inbox {
  const { held } = options
  const worker = createInboxWorker(options.store, held)
  let foreign = 0
  let failures = 0
  let lastError: string | null = null

  const startFeed = (source: InboxSource, feed: number): RunningFeed => {
    let generation = 0
    const read = new Map<number, bigint>()
    const committable = (partition: number, next: bigint): bigint => {
      const lowest = held.lowest(feed, partition)
      return lowest === null || lowest > next ? next : lowest
    }

    const batch = async (messages: readonly [FeedMessage, ...FeedMessage[]], heartbeat: () => Promise<void>): Promise<FeedProgress> => {
      const [first] = messages
      const mine = generation
      if (held.size >= HELD_LIMIT) {
        await wait(RETRY_MS)
        await heartbeat().catch(() => undefined)
        return { next: first.offset, committed: committable(first.partition, first.offset) }
      }
      const received = messages.flatMap(({ headers, value, partition, offset }): readonly ReceivedEvent[] => {
        const event = eventOf(headers, value)
        return event === null ? [] : [{ event, feed, generation: mine, partition, offset }]
      })
      foreign += messages.length - received.length
      try {
        await worker.take(received, r => r.feed !== feed || r.generation === generation)
      } catch (error) {
        // The database cannot be reached, or the answer was lost: read them again, and let the inbox table tell which are new.
        failures += 1
        lastError = error instanceof Error ? error.message : String(error)
        await wait(RETRY_MS)
        await heartbeat().catch(() => undefined)
        return { next: first.offset, committed: null }
      }
      const next = (messages.at(-1) ?? first).offset + 1n
      if (mine === generation) read.set(first.partition, next)
      return { next, committed: committable(first.partition, next) }
    }

    const running = startEventFeed(
      source.connection,
      // All partitions of a fetch are handed over side by side: the worker joins what arrives together into one transaction.
      { topic: source.topic, groupId: options.groupId, partitionsAtOnce: 32 },
      {
        batch,
        assigned: () => {
          generation += 1
          read.clear()
          held.forget(feed)
        },
      },
    )
    return {
      close: async () => await running.close(),
      // Events that were held and applied later take the committed offset with them, also when nothing new arrives.
      advance: () => {
        for (const [partition, next] of read) running.commit(partition, committable(partition, next))
      },
    }
  }

  const feeds = options.sources.map(startFeed)
  const retry = setInterval(() => {
    worker.retryHeld()
    for (const feed of feeds) feed.advance()
  }, RETRY_HELD_EVERY_MS)

  return {
    stats: () => ({ ...worker.counts(), foreign, held: held.counts(), failures, lastError }),
    close: async () => {
      clearInterval(retry)
      await Promise.all(feeds.map(async feed => await feed.close()))
      await worker.idle()
    },
  }
}
