import type { Producer } from 'kafkajs'
import { disconnect, type KafkaConnection, openKafka, withinDeadline } from './kafka-client.ts'

export type OutboundEvent = {
  /** The ownership key: all events of a key go to one partition, in order. */
  readonly key: string
  readonly headers: Readonly<Record<string, string>>
  readonly value: string
}

export interface EventPublisher {
  /** Returns when the broker's in-sync replicas have all of them. @throws `kafka-unreachable`; some may have been published */
  publish(events: readonly OutboundEvent[]): Promise<void>
  close(): Promise<void>
}

/** An idempotent producer, so that its own retries neither double nor reorder. After a failure it is replaced: a new one may double, never lose. */
export function createEventPublisher(connection: KafkaConnection, topic: string): EventPublisher {
  let current: Promise<Producer> | null = null

  const open = async (): Promise<Producer> => {
    // An idempotent kafkajs producer refuses to run with no retry at all.
    const producer = (await openKafka(connection)).producer({
      idempotent: true,
      maxInFlightRequests: 1,
      allowAutoTopicCreation: false,
      retry: { retries: 2, initialRetryTime: 20, maxRetryTime: 200 },
    })
    await producer.connect()
    return producer
  }

  const drop = () => {
    current?.then(disconnect).catch(() => undefined)
    current = null
  }

  return {
    publish: async events => {
      if (events.length === 0) return
      try {
        current ??= open()
        const producer = await withinDeadline(connection, 'connect', current)
        const messages = events.map(e => ({ key: e.key, value: e.value, headers: { ...e.headers } }))
        await withinDeadline(connection, `publish to ${topic}`, producer.send({ topic, acks: -1, messages }))
      } catch (error) {
        drop()
        throw error
      }
    },
    close: async () => {
      const producer = await current?.catch(() => null)
      current = null
      if (producer !== null && producer !== undefined) await disconnect(producer)
    },
  }
}
