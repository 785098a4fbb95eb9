import { grantAccess, type KafkaGrant } from '../src/adapters/kafka-region/access.ts'
import type { KafkaConnection } from '../src/adapters/kafka-region/kafka-client.ts'
import { ensureTopics } from '../src/adapters/kafka-region/topics.ts'
import type { KafkaServer } from './kafka.ts'
import { inboxGroup, OWNERSHIP_TOPIC, outboxTopic, REGIONS, type SandboxRegion } from './layout.ts'

/** Logins of each broker. The names of their secrets are `<region>.kafka.<login>`. */
export const KAFKA_LOGINS = ['app_service', 'app_inbox', 'homeregion_operator'] as const

/** Topics of one region and who may do what with them; repeatable. */
export async function prepareStreams(region: SandboxRegion, server: KafkaServer): Promise<void> {
  const connection: KafkaConnection = {
    login: {
      brokers: server.brokers,
      ssl: false,
      sasl: { mechanism: 'scram-sha-256', username: server.admin.username, password: { env: 'admin' } },
    },
    secrets: { read: async () => server.admin.password },
    name: `${region} Kafka`,
    clientId: 'homeregion-sandbox',
    callTimeoutMs: 15_000,
  }
  await ensureTopics(connection, [
    { topic: outboxTopic(region) },
    { topic: OWNERSHIP_TOPIC, settings: { 'cleanup.policy': 'compact', 'min.cleanable.dirty.ratio': '0.1' } },
  ])
  await grantAccess(connection, grants(region))
}

function grants(region: SandboxRegion): readonly KafkaGrant[] {
  const outbox = { resource: 'topic', name: outboxTopic(region) } as const
  const ownership = { resource: 'topic', name: OWNERSHIP_TOPIC } as const
  const foreignInboxes = REGIONS.filter(r => r !== region).map(r => ({ resource: 'group', name: inboxGroup(r) }) as const)
  return [
    { username: 'app_service', ...outbox, may: ['write', 'describe'] },
    { username: 'app_service', ...ownership, may: ['read', 'describe'] },
    { username: 'app_service', resource: 'group', name: '*', may: ['read', 'describe'] },
    { username: 'app_inbox', ...outbox, may: ['read', 'describe'] },
    ...foreignInboxes.map(group => ({ username: 'app_inbox', ...group, may: ['read', 'describe'] }) as const),
    { username: 'homeregion_operator', ...outbox, may: ['describe'] },
    // For the fence of the region's producers: to change and read access rules, and to take over transactional ids.
    { username: 'homeregion_operator', resource: 'cluster', name: 'kafka-cluster', may: ['alter', 'describe'] },
    { username: 'homeregion_operator', resource: 'transactional-id', name: '*', may: ['write'] },
    { username: 'homeregion_operator', ...ownership, may: ['write', 'create', 'describe'] },
    ...foreignInboxes.map(group => ({ username: 'homeregion_operator', ...group, may: ['describe'] }) as const),
  ]
}
