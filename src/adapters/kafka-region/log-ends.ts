import { setTimeout as wait } from 'node:timers/promises'
import type { Brokers } from './broker-requests.ts'

/** The three ends of one partition's log. They are one and the same when nothing is open and nothing is on its way to a replica. */
export type PartitionEnds = {
  readonly topic: string
  readonly partition: number
  /** What consumers of committed records see up to: below the high watermark while a transaction is open. */
  readonly lastStable: string
  /** What every in-sync replica has. */
  readonly highWatermark: string
  /** What the leader has: above the high watermark while a write it has admitted is on its way to the others. */
  readonly logEnd: string
}

const LATEST = -1
const READ_UNCOMMITTED = 0
const READ_COMMITTED = 1
const CONSUMER = -1
// Kafka's own tools use it: a reader that is no consumer, and is told what the leader has.
const DEBUGGING_REPLICA = -2

/** Ends of every partition, from its leader. @throws `kafka-unreachable`, for a partition without a leader too */
export async function readEnds(brokers: Brokers): Promise<readonly PartitionEnds[]> {
  const partitions = brokers.topics.flatMap(({ topic, partitions: all }) => all.map(p => ({ topic, ...p })))
  const leaders = [...new Set(partitions.map(p => p.leader))]
  const ends = await Promise.all(
    leaders.map(async leader => {
      const mine = partitions.filter(p => p.leader === leader)
      const read = async (replicaId: number, isolationLevel: number) => await readLeader(brokers, leader, mine, replicaId, isolationLevel)
      // The lowest first: a write in between can only make them differ.
      const lastStable = await read(CONSUMER, READ_COMMITTED)
      const highWatermark = await read(CONSUMER, READ_UNCOMMITTED)
      const logEnd = await read(DEBUGGING_REPLICA, READ_UNCOMMITTED)
      return mine.map(({ topic, partition }) => {
        const id = place({ topic, partition })
        return {
          topic,
          partition,
          lastStable: lastStable.get(id) ?? '',
          highWatermark: highWatermark.get(id) ?? '',
          logEnd: logEnd.get(id) ?? '',
        }
      })
    }),
  )
  return ends.flat().sort((a, b) => (a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1))
}

async function readLeader(
  brokers: Brokers,
  leader: number,
  partitions: readonly { readonly topic: string; readonly partition: number }[],
  replicaId: number,
  isolationLevel: number,
): Promise<ReadonlyMap<string, string>> {
  const topics = [...new Set(partitions.map(p => p.topic))].map(topic => ({
    topic,
    partitions: partitions.filter(p => p.topic === topic).map(({ partition }) => ({ partition, timestamp: LATEST })),
  }))
  const { responses } = await brokers.on(leader, 'ends', async broker => await broker.listOffsets({ replicaId, isolationLevel, topics }))
  return new Map(responses.flatMap(r => r.partitions.map(p => [place({ topic: r.topic, partition: p.partition }), p.offset] as const)))
}

export function place({ topic, partition }: { readonly topic: string; readonly partition: number }): string {
  return `${topic}/${partition}`
}

/** Partitions with a transaction or a write that may still become visible. */
export function openPartitions(ends: readonly PartitionEnds[]): readonly PartitionEnds[] {
  return ends.filter(e => e.lastStable === '' || e.lastStable !== e.highWatermark || e.highWatermark !== e.logEnd)
}

/** Partitions whose ends are not the same in both reads. */
export function movedPartitions(first: readonly PartitionEnds[], second: readonly PartitionEnds[]): readonly PartitionEnds[] {
  const before = new Map(first.map(e => [place(e), e]))
  return second.filter(e => JSON.stringify(before.get(place(e))) !== JSON.stringify(e))
}

const POLL_MS = 20

/** Waits, as long as `withinMs`, until nothing is open: an abort's markers are written after the call that ordered it has answered. */
export async function readUntilClosed(brokers: Brokers, withinMs: number): Promise<readonly PartitionEnds[]> {
  const end = performance.now() + withinMs
  for (;;) {
    const ends = await readEnds(brokers)
    if (openPartitions(ends).length === 0 || performance.now() > end) return ends
    await wait(POLL_MS)
  }
}
