import { setTimeout as wait } from 'node:timers/promises'
import type { Consumer, EachBatchPayload } from 'kafkajs'
import { disconnect, type KafkaConnection, openKafka } from './kafka-client.ts'
import { ensureTopics } from './topics.ts'

export type FeedMessage = {
  readonly partition: number
  readonly offset: bigint
  readonly key: string
  readonly headers: Readonly<Record<string, string>>
  readonly value: string
}

/** `next`: where reading goes on. `committed`: everything below it needs no second reading after a restart; null commits nothing. */
export type FeedProgress = { readonly next: bigint; readonly committed: bigint | null }

export type FeedHandler = {
  /** Messages of one partition, in order. Must not throw; to read a message again, return its offset as `next`. */
  batch(messages: readonly [FeedMessage, ...FeedMessage[]], heartbeat: () => Promise<void>): Promise<FeedProgress>
  /** Partitions were assigned anew: reading starts again at the committed offsets. */
  assigned(): void
}

export interface EventFeed {
  /** Commits `offset` of a partition soon, where it is not the one committed last. */
  commit(partition: number, offset: bigint): void
  close(): Promise<void>
}

export type FeedOptions = {
  readonly topic: string
  readonly groupId: string
  readonly partitionsAtOnce: number
  /** Settings for the topic, should it have to be created. */
  readonly settings?: Readonly<Record<string, string>>
}

// The broker answers a fetch as soon as there is one byte; this only bounds how long it holds an idle one, and so a stop.
const IDLE_FETCH_MS = 250
// Offsets are committed behind the reading, off its path; a restart reads at most this much again, and the inbox knows what it has.
const COMMIT_EVERY_MS = 50
// The shortest that a broker allows by default: a consumer that was killed is missed for this long.
const SESSION_MS = 6000
const REOPEN_MS = 300
// An idle fetch comes back within IDLE_FETCH_MS. A reader whose network went away and came back can wait for an answer for ever and call it running.
const SILENT_MS = 10_000

/** Reads `topic` from the group's committed offsets, or from its beginning, for ever, until it is closed. */
export function startEventFeed(connection: KafkaConnection, options: FeedOptions, handler: FeedHandler): EventFeed {
  const { topic, groupId } = options
  const closing = new AbortController()
  const due = new Map<number, bigint>()
  const done = new Map<number, bigint>()
  let consumer: Consumer | null = null
  let timer: NodeJS.Timeout | null = null
  /** Batches in the hands of the handler: nothing need be fetched meanwhile. */
  let handled = 0

  const commit = async (): Promise<void> => {
    const offsets = [...due].map(([partition, offset]) => ({ topic, partition, offset: offset.toString() }))
    due.clear()
    if (offsets.length > 0) await consumer?.commitOffsets(offsets)
  }

  const commitSoon = (partition: number, offset: bigint) => {
    if (done.get(partition) === offset) return
    done.set(partition, offset)
    due.set(partition, offset)
    timer ??= setTimeout(() => {
      timer = null
      // Lost in a rebalance or with the broker: those events are read again, and recognised.
      commit().catch(() => done.clear())
    }, COMMIT_EVERY_MS)
  }

  const eachBatch = async (payload: EachBatchPayload): Promise<void> => {
    const { batch } = payload
    const [first, ...rest] = batch.messages.map(m => ({
      partition: batch.partition,
      offset: BigInt(m.offset),
      key: m.key?.toString() ?? '',
      headers: Object.fromEntries(Object.entries(m.headers ?? {}).map(([name, value]) => [name, headerText(value)])),
      value: m.value?.toString() ?? '',
    }))
    if (first === undefined || !payload.isRunning() || payload.isStale()) return
    handled += 1
    const progress = await handler
      .batch([first, ...rest], () => payload.heartbeat())
      .finally(() => {
        handled -= 1
      })
    if (progress.next > first.offset) payload.resolveOffset((progress.next - 1n).toString())
    if (progress.committed !== null) commitSoon(batch.partition, progress.committed)
  }

  /** Resolves when kafkajs has given the consumer up for good; it recovers by itself from anything it calls retriable. */
  const runOnce = async (): Promise<void> => {
    await ensureTopics(connection, [{ topic, settings: options.settings ?? {} }])
    const reader = (await openKafka(connection)).consumer({
      groupId,
      sessionTimeout: SESSION_MS,
      rebalanceTimeout: SESSION_MS,
      heartbeatInterval: 1500,
      maxWaitTimeInMs: IDLE_FETCH_MS,
      minBytes: 1,
      allowAutoTopicCreation: false,
      retry: { retries: 5, initialRetryTime: 50, maxRetryTime: 500, restartOnFailure: () => Promise.resolve(true) },
    })
    let stop: () => void = () => undefined
    const ended = new Promise<void>(resolve => {
      stop = resolve
    })
    closing.signal.addEventListener('abort', stop)
    let heardAt = performance.now()
    const heard = () => {
      heardAt = performance.now()
    }
    reader.on(reader.events.FETCH, heard)
    reader.on(reader.events.GROUP_JOIN, heard)
    const silence = setInterval(() => {
      if (handled > 0) heard()
      else if (performance.now() - heardAt > SILENT_MS) stop()
    }, IDLE_FETCH_MS)
    try {
      reader.on(reader.events.CRASH, event => {
        if (!event.payload.restart) stop()
      })
      reader.on(reader.events.GROUP_JOIN, () => {
        due.clear()
        done.clear()
        handler.assigned()
      })
      await reader.connect()
      await reader.subscribe({ topics: [topic], fromBeginning: true })
      await reader.run({
        autoCommit: false,
        eachBatchAutoResolve: false,
        partitionsConsumedConcurrently: options.partitionsAtOnce,
        eachBatch,
      })
      consumer = reader
      await ended
      await Promise.race([commit().catch(() => undefined), wait(IDLE_FETCH_MS)])
    } finally {
      closing.signal.removeEventListener('abort', stop)
      clearInterval(silence)
      consumer = null
      await disconnect(reader)
    }
  }

  const loop = async (): Promise<void> => {
    while (!closing.signal.aborted) {
      await runOnce().catch(() => undefined)
      await wait(REOPEN_MS, undefined, { signal: closing.signal }).catch(() => undefined)
    }
  }

  const running = loop()
  return {
    commit: commitSoon,
    close: async () => {
      closing.abort()
      if (timer !== null) clearTimeout(timer)
      await running
    },
  }
}

function headerText(value: Buffer | string | (Buffer | string)[] | undefined): string {
  return Array.isArray(value) ? headerText(value[0]) : (value?.toString() ?? '')
}
