import type { Admin, Kafka, Producer } from 'kafkajs'
import type { Config, RegionConfig } from '../../domain/config.ts'
import type { PartitionEnd, RegionStream } from '../../domain/ports.ts'
import { eventsBeyond } from './events-beyond.ts'
import { cutConnections, disconnect, type KafkaConnection, openKafka, type SecretReader, withinDeadline } from './kafka-client.ts'
import { relayPartition } from './relay-partition.ts'
import { ensureTopic } from './topics.ts'

/** Connects at the first call and keeps the connection; a failed call throws it away, and the next one opens another. */
export function createRegionStream(region: RegionConfig, config: Config, secrets: SecretReader): RegionStream {
  const connection: KafkaConnection = {
    login: region.kafka,
    secrets,
    name: `${region.name} Kafka`,
    clientId: 'homeregion',
    callTimeoutMs: config.policy.callTimeoutMs,
  }
  const kafka = reusable(() => openKafka(connection))
  const admin = reusable(async () => await connected((await kafka.get()).admin()))
  const producer = reusable(async () => {
    const announcer = (await kafka.get()).producer({ allowAutoTopicCreation: false, retry: { retries: 1 } })
    const topic = ensureTopic(await admin.get(), config.ownership.topic, { 'cleanup.policy': 'compact' })
    await Promise.all([connected(announcer), topic])
    return announcer
  })

  const call = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
    try {
      return await withinDeadline(connection, what, work())
    } catch (error) {
      drop(producer.take())
      drop(admin.take())
      throw error
    }
  }

  const outboxEnds = async (group: string): Promise<readonly PartitionEnd[]> =>
    await call(`offsets of ${region.kafka.outboxTopic}`, async () => {
      const client = await admin.get()
      const topic = region.kafka.outboxTopic
      // `resolveOffsets` must stay away: it would join the group and write offsets.
      const [ends, groups] = await Promise.all([client.fetchTopicOffsets(topic), client.fetchOffsets({ groupId: group, topics: [topic] })])
      const committed = new Map(groups.flatMap(g => g.partitions.map(p => [p.partition, p.offset] as const)))
      return ends
        .map(e => ({ partition: e.partition, end: e.offset, committed: evidence(committed.get(e.partition)) }))
        .sort((a, b) => a.partition - b.partition)
    })

  return {
    region: region.name,
    brokers: async () =>
      await call('describe cluster', async () => {
        const { brokers } = await (await admin.get()).describeCluster()
        return brokers.map(b => b.nodeId).sort((a, b) => a - b)
      }),
    outboxEnds,
    eventsBeyond: async group => await eventsBeyond(connection, region.kafka.outboxTopic, await outboxEnds(group)),
    partitionOf: (key, partitions) =>
      config.transport.relay === 'polling' ? relayPartition(region.kafka.outboxTopic, key, partitions) : null,
    announce: async record =>
      await call(`announce on ${config.ownership.topic}`, async () => {
        const { key, homeRegion, epoch, state, changedAt } = record
        const value = JSON.stringify({ key, homeRegion, epoch, state, changedAt })
        const client = await producer.get()
        await client.send({ topic: config.ownership.topic, acks: -1, messages: [{ key, value }] })
      }),
    close: async () => {
      const open = await Promise.all([producer.take(), admin.take()].map(async client => await client?.catch(() => null)))
      await Promise.all(open.map(async client => (client === null || client === undefined ? undefined : await disconnect(client))))
      const used = await kafka.take()?.catch(() => null)
      if (used !== null && used !== undefined) cutConnections(used)
    },
  }
}

/** -1 says that the group has committed nothing: no evidence, which is not the same as caught up. */
function evidence(offset: string | undefined): string | null {
  return offset === undefined || offset === '-1' ? null : offset
}

async function connected<T extends Admin | Producer>(client: T): Promise<T> {
  await client.connect()
  return client
}

function drop(client: Promise<Admin | Producer> | null): void {
  client?.then(disconnect).catch(() => undefined)
}

type Reusable<T> = { get(): Promise<T>; take(): Promise<T> | null }

function reusable<T extends Kafka | Admin | Producer>(open: () => Promise<T>): Reusable<T> {
  let current: Promise<T> | null = null
  return {
    get: async () => {
      current ??= open()
      const mine = current
      try {
        return await mine
      } catch (error) {
        if (current === mine) current = null
        throw error
      }
    },
    take: () => {
      const taken = current
      current = null
      return taken
    },
  }
}
