import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Kafka, Producer } from 'kafkajs'
import { type KafkaServer, startKafka } from '../../sandbox/kafka.ts'
import { createProcessTable, killProcess, type ProcessRecord } from '../../sandbox/processes.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { grantAccess, type KafkaGrant } from '../../src/adapters/kafka-region/access.ts'
import { openBrokers } from '../../src/adapters/kafka-region/broker-requests.ts'
import { type EventFeed, startEventFeed } from '../../src/adapters/kafka-region/event-feed.ts'
import { createKafkaFence } from '../../src/adapters/kafka-region/fence.ts'
import { cutConnections, type KafkaConnection, openKafka } from '../../src/adapters/kafka-region/kafka-client.ts'
import { ensureTopics } from '../../src/adapters/kafka-region/topics.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { Config, FenceConfig, KafkaLogin } from '../../src/domain/config.ts'
import type { Fence, FenceNote, FenceNotes } from '../../src/domain/fence.ts'
import type { FaultPoint } from '../../src/domain/ports.ts'
import { guardAgainstCrash } from '../rig/crash-guard.ts'
import { fixtureConfig } from './boundary-fixture.ts'
import { startSecondBroker } from './second-broker.ts'

export type KafkaFence = Extract<FenceConfig, { kind: 'kafka' }>
export type Cluster = 'region-a' | 'region-b'
const USERS = ['operator', 'app', 'stranger', 'reader'] as const
export type User = (typeof USERS)[number] | 'admin'

export type KafkaScene = {
  readonly servers: Readonly<Record<Cluster, KafkaServer>>
  readonly dir: string
  /** A topic and a transactional id of one test's own, with the rights an operator would give. */
  prepare(): Promise<{ readonly topic: string; readonly id: string }>
  login(user: User, cluster?: Cluster): NonNullable<KafkaLogin['sasl']>
  connection(user: User, cluster?: Cluster): KafkaConnection
  client(user: User): Promise<Kafka>
  producer(user: User, transactionalId?: string): Promise<Producer>
  /** Every access rule of the cluster, as a sorted list. */
  rules(cluster?: Cluster): Promise<readonly string[]>
  /** After a kill: the same broker, with its data and on its port. */
  restart(cluster: Cluster): Promise<void>
  /** What runs now, as it was started last. */
  processes(): readonly ProcessRecord[]
  /** A second broker for region-a's cluster, which the first one controls. Started again by a second call. */
  startSecond(): Promise<ProcessRecord>
  config(fence: KafkaFence, outboxTopic: string, change?: (config: Config) => Config): Config
  stop(): Promise<void>
}

export function fenceOf(scene: KafkaScene, topic: string, ids: readonly string[], more: Partial<KafkaFence> = {}): KafkaFence {
  const producer = { principal: 'User:app', login: scene.login('app'), transactionalIds: ids }
  return { kind: 'kafka', name: 'kafka', admin: null, topics: [topic], producers: [producer], ...more }
}

export function createFence(config: Config, notes: FenceNotes, fault: FaultPoint = () => Promise.resolve()): Fence {
  const [region] = config.regions
  const fence = region?.fences.find(f => f.kind === 'kafka')
  if (region === undefined || fence === undefined) throw new Error('the configuration has no Kafka fence')
  return createKafkaFence(region, fence, config, createSecrets({}), notes, fault)
}

export type NotesInMemory = FenceNotes & { note: FenceNote | null }

export function notesInMemory(): NotesInMemory {
  const notes: NotesInMemory = {
    note: null,
    read: () => Promise.resolve(notes.note),
    write: note => {
      notes.note = note
      return Promise.resolve()
    },
  }
  return notes
}

/** Two clusters of one broker each, with an authorizer. */
export async function startKafkaScene(): Promise<KafkaScene> {
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-kafka-fence-'))
  writeFileSync(join(dir, '.homeregion-sandbox'), '')
  const guard = guardAgainstCrash(dir)
  const table = createProcessTable(join(dir, 'processes'))
  const passwords = Object.fromEntries(USERS.map(name => [name, randomBytes(12).toString('base64url')]))
  const start = async (cluster: Cluster) =>
    await startKafka({ dir: join(dir, cluster), name: cluster, users: passwords, onStart: p => table.record(p) })
  const [a, b] = await Promise.all([start('region-a'), start('region-b')])
  const servers = { 'region-a': a, 'region-b': b }
  const files = (user: User, cluster: Cluster) => join(dir, user === 'admin' ? `${cluster}.admin` : user)
  for (const [user, password] of Object.entries(passwords)) writeFileSync(join(dir, user), password)
  for (const cluster of ['region-a', 'region-b'] as const) writeFileSync(files('admin', cluster), servers[cluster].admin.password)

  const login = (user: User, cluster: Cluster = 'region-a') =>
    ({ mechanism: 'scram-sha-256', username: user, password: { file: files(user, cluster) } }) as const
  const connection = (user: User, cluster: Cluster = 'region-a'): KafkaConnection => ({
    login: { brokers: servers[cluster].brokers, ssl: false, sasl: login(user, cluster) },
    secrets: createSecrets({}),
    name: `${cluster} as ${user}`,
    clientId: 'test',
    callTimeoutMs: 5000,
  })
  const clients: Kafka[] = []
  const client = async (user: User) => {
    const opened = await openKafka(connection(user))
    clients.push(opened)
    return opened
  }
  let made = 0

  return {
    servers,
    dir,
    login,
    connection,
    client,
    prepare: async () => {
      made += 1
      const [topic, id] = [`out-${made}`, `tx-${made}`]
      await Promise.all(
        (['region-a', 'region-b'] as const).map(async cluster => {
          await ensureTopics(connection('admin', cluster), [{ topic }])
          await grantAccess(connection('admin', cluster), grants(topic, id))
          await granted(connection('operator', cluster), topic)
        }),
      )
      return { topic, id }
    },
    producer: async (user, transactionalId) => {
      const producer = (await client(user)).producer({
        idempotent: true,
        maxInFlightRequests: 1,
        allowAutoTopicCreation: false,
        retry: { retries: 2, initialRetryTime: 20, maxRetryTime: 100 },
        ...(transactionalId === undefined ? {} : { transactionalId, transactionTimeout: 30_000 }),
      })
      await producer.connect()
      return producer
    },
    rules: async (cluster = 'region-a') => await readRules(connection('admin', cluster)),
    config: (fence, outboxTopic, change = c => c) => {
      const config = fixtureConfig(5432, new URL('postgres://nobody@127.0.0.1'), {})
      const [template] = config.regions
      if (template === undefined) throw new Error('the configuration has no region')
      const region = (name: Cluster, fences: readonly FenceConfig[]) => {
        const kafka = { ...template.kafka, brokers: servers[name].brokers, sasl: login('operator', name), outboxTopic }
        return { ...template, name, kafka, fences }
      }
      return change({ ...config, regions: [region('region-a', [fence]), region('region-b', [])] })
    },
    restart: async cluster => {
      await start(cluster)
    },
    processes: () => table.list(),
    startSecond: async () => {
      const second = await startSecondBroker(join(dir, 'region-a'), join(dir, 'region-a-2'))
      table.record(second)
      return second
    },
    stop: async () => {
      for (const opened of clients) cutConnections(opened)
      await Promise.all(table.list().map(killProcess))
      rmSync(dir, { recursive: true, force: true })
      guard.release()
    },
  }
}

/** A broker answers that rules were made before its authoriser has read them; those of one request are read together. */
async function granted(operator: KafkaConnection, topic: string): Promise<void> {
  const seen = await waitUntil(async () => {
    const brokers = await openBrokers(operator, [topic])
    try {
      return brokers.topics.every(t => t.error === null)
    } finally {
      await brokers.close()
    }
  }, 20_000)
  if (!seen) throw new Error(`the rules for ${topic} do not hold at ${operator.name}`)
}

function grants(topic: string, id: string): readonly KafkaGrant[] {
  return [
    { username: 'app', resource: 'topic', name: topic, may: ['write', 'describe'] },
    { username: 'app', resource: 'transactional-id', name: id, may: ['write'] },
    { username: 'stranger', resource: 'topic', name: topic, may: ['write', 'describe'] },
    { username: 'reader', resource: 'topic', name: topic, may: ['read'] },
    { username: 'reader', resource: 'group', name: '*', may: ['read'] },
    { username: 'operator', resource: 'topic', name: topic, may: ['describe'] },
    { username: 'operator', resource: 'transactional-id', name: '*', may: ['write'] },
    { username: 'operator', resource: 'cluster', name: 'kafka-cluster', may: ['alter', 'describe'] },
  ]
}

async function readRules(connection: KafkaConnection): Promise<readonly string[]> {
  const brokers = await openBrokers(connection, ['none'])
  try {
    const all = {
      resourceType: 1,
      resourceName: null,
      resourcePatternType: 1,
      principal: null,
      host: null,
      operation: 1,
      permissionType: 1,
    }
    const { resources } = await brokers.on(brokers.alive[0] ?? -1, 'rules', async broker => await broker.describeAcls(all))
    return resources.flatMap(({ acls, ...pattern }) => acls.map(acl => JSON.stringify({ ...pattern, ...acl }))).sort()
  } finally {
    await brokers.close()
  }
}

/** Reads a topic from its beginning, as a group's consumer of committed records does, and commits what it has read. */
export function follow(connection: KafkaConnection, topic: string): { readonly values: string[]; readonly feed: EventFeed } {
  const values: string[] = []
  const feed = startEventFeed(
    connection,
    { topic, groupId: `group-${topic}`, partitionsAtOnce: 1 },
    {
      assigned: () => undefined,
      batch: messages => {
        values.push(...messages.map(m => m.value))
        const next = (messages.at(-1) ?? messages[0]).offset + 1n
        return Promise.resolve({ next, committed: next })
      },
    },
  )
  return { values, feed }
}
