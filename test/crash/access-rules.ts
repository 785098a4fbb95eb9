import type { KafkaServer } from '../../sandbox/kafka.ts'
import { openBrokers } from '../../src/adapters/kafka-region/broker-requests.ts'

// Numbers of the protocol that mean "whatever it is".
const ANY = 1

/** Every access rule of a cluster, sorted. */
export async function accessRules(server: KafkaServer): Promise<readonly string[]> {
  const { username, password } = server.admin
  const brokers = await openBrokers(
    {
      login: { brokers: server.brokers, ssl: false, sasl: { mechanism: 'scram-sha-256', username, password: { env: 'UNUSED' } } },
      secrets: { read: async () => password },
      name: 'Kafka',
      clientId: 'test',
      callTimeoutMs: 10_000,
    },
    ['none'],
  )
  try {
    const filter = {
      resourceType: ANY,
      resourceName: null,
      resourcePatternType: ANY,
      principal: null,
      host: null,
      operation: ANY,
      permissionType: ANY,
    }
    const { resources } = await brokers.on(brokers.alive[0] ?? -1, 'rules', async broker => await broker.describeAcls(filter))
    return resources.flatMap(({ acls, ...pattern }) => acls.map(acl => JSON.stringify({ ...pattern, ...acl }))).sort()
  } finally {
    await brokers.close()
  }
}
