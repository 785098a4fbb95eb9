import { HomeregionError } from '../../domain/errors.ts'
import type { PartitionEnd } from '../../domain/ports.ts'
import { type Brokers, openBrokers } from './broker-requests.ts'
import type { KafkaConnection } from './kafka-client.ts'

const READ_COMMITTED = 1
const CONSUMER = -1
const FETCH_BYTES = 4 * 1024 * 1024
/** The broker is asked for what it has; there is nothing to wait for below a known end. */
const FETCH_WAIT_MS = 50

/**
 * Events of a topic between what a group has committed and the end, by key. Read from the partitions' leaders without joining a group: nothing
 * is committed, and nobody's assignment moves. @throws `kafka-unreachable`, also where a partition has no committed offset to begin at
 */
export async function eventsBeyond(
  connection: KafkaConnection,
  topic: string,
  ends: readonly PartitionEnd[],
): Promise<Map<string, number>> {
  const counts = new Map<string, number>()
  const behind = ends.filter(e => BigInt(e.committed ?? '0') < BigInt(e.end))
  if (behind.length === 0) return counts
  const unread = behind.find(e => e.committed === null)
  if (unread !== undefined)
    throw new HomeregionError('kafka-unreachable', {
      fact: `${connection.name}: the group has committed nothing for partition ${unread.partition}`,
    })
  const brokers = await openBrokers(connection, [topic])
  try {
    for (const end of behind) await readPartition(brokers, topic, end, counts)
    return counts
  } finally {
    await brokers.close()
  }
}

async function readPartition(brokers: Brokers, topic: string, end: PartitionEnd, counts: Map<string, number>): Promise<void> {
  const leader = brokers.topics.find(t => t.topic === topic)?.partitions.find(p => p.partition === end.partition)?.leader ?? -1
  let next = BigInt(end.committed ?? '0')
  while (next < BigInt(end.end)) {
    const partitions = [{ partition: end.partition, fetchOffset: next.toString(), maxBytes: FETCH_BYTES }]
    const answer = await brokers.on(leader, `fetch ${topic}`, async broker => {
      const request = { replicaId: CONSUMER, isolationLevel: READ_COMMITTED, maxWaitTime: FETCH_WAIT_MS, maxBytes: FETCH_BYTES }
      return await broker.fetch({ ...request, topics: [{ topic, partitions }] })
    })
    const messages = answer.responses.flatMap(r => r.partitions).flatMap(p => p.messages)
    const fresh = messages.filter(m => BigInt(m.offset) >= next)
    const last = fresh.at(-1)
    // What is left are markers of transactions, which carry no event.
    if (last === undefined) return
    for (const { key, offset, isControlRecord } of fresh)
      if (isControlRecord !== true && BigInt(offset) < BigInt(end.end)) {
        const text = key?.toString() ?? ''
        counts.set(text, (counts.get(text) ?? 0) + 1)
      }
    next = BigInt(last.offset) + 1n
  }
}
