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
    await admin.createTopics({ topics: [{ topic, configEntries }], waitForLeaders: true })
  } catch (error) {
    const type = protocolError(error)
    const harmless = ['TOPIC_ALREADY_EXISTS', 'TOPIC_AUTHORIZATION_FAILED', 'CLUSTER_AUTHORIZATION_FAILED']
    if (type === null || !harmless.includes(type)) throw error
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
