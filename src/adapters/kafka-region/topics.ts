import { setTimeout as wait } from 'node:timers/promises'
import type { Admin } from 'kafkajs'
import { disconnect, type KafkaConnection, openKafka, protocolError, withinDeadline } from './kafka-client.ts'

/**
 * Creates `topic` where it is missing and this login may. A login that may not create is not an error here: the topic may
 * exist unseen, and the call that needs it says what is wrong.
 */
export async function ensureTopic(admin: Admin, topic: string, settings: Readonly<Record<string, string>> = {}): Promise<void> {
  const present = await admin.listTopics()
  if (present.includes(topic)) return
  const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }))
  try {
    // kafkajs's own wait for leaders fails on a broker that has not yet heard of the topic it has just created.
    await admin.createTopics({ topics: [{ topic, configEntries }], waitForLeaders: false })
  } catch (error) {
    const type = protocolError(error)
    if (type === 'TOPIC_AUTHORIZATION_FAILED' || type === 'CLUSTER_AUTHORIZATION_FAILED') return
    if (type !== 'TOPIC_ALREADY_EXISTS') throw error
  }
  await leaders(admin, topic)
}

const LEADER_POLL_MS = 20

// A broker that has just started elects within some 100 ms; a topic without a leader after this fails at its first use, which says so.
const LEADER_WAIT_MS = 5000

async function leaders(admin: Admin, topic: string): Promise<void> {
  const end = performance.now() + LEADER_WAIT_MS
  while (performance.now() < end) {
    try {
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
      if (topics.every(t => t.partitions.length > 0 && t.partitions.every(p => p.leader >= 0))) return
    } catch (error) {
      const type = protocolError(error)
      if (type !== 'UNKNOWN_TOPIC_OR_PARTITION' && type !== 'LEADER_NOT_AVAILABLE') throw error
    }
    await wait(LEADER_POLL_MS)
  }
}

/** The same over a connection of its own. @throws `kafka-unreachable` */
export async function ensureTopics(
  connection: KafkaConnection,
  topics: readonly { readonly topic: string; readonly settings?: Readonly<Record<string, string>> }[],
): Promise<void> {
  const admin = (await openKafka(connection)).admin()
  try {
    await withinDeadline(connection, 'connect', admin.connect())
    for (const t of topics) await withinDeadline(connection, `create ${t.topic}`, ensureTopic(admin, t.topic, t.settings))
  } finally {
    await disconnect(admin)
  }
}
