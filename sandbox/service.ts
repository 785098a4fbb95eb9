import { readFile } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { followAnnouncements, parseAnnouncement } from '../src/adapters/kafka-region/announcements.ts'
import { createEventPublisher } from '../src/adapters/kafka-region/event-publisher.ts'
import type { KafkaConnection } from '../src/adapters/kafka-region/kafka-client.ts'
import { listenFor } from '../src/adapters/postgres/notification-listener.ts'
import { createServicePool, type ServicePool } from '../src/adapters/postgres/service-pool.ts'
import type { DatabaseLogin, SecretReference } from '../src/domain/config.ts'
import { createGuardedWriter } from '../src/service/guarded-write.ts'
import { startInbox } from '../src/service/inbox.ts'
import { createInboxStore } from '../src/service/inbox-apply.ts'
import { createHeldEvents } from '../src/service/inbox-held.ts'
import { createOwnershipCache, type OwnershipCache } from '../src/service/ownership-cache.ts'
import { startRelay } from '../src/service/relay.ts'
import { accountApplier } from './service-account.ts'
import type { ServiceConfig, ServiceStream } from './service-config.ts'
import { handler } from './service-http.ts'
import { IDEMPOTENCY, INBOX, OUTBOX, OUTBOX_CHANNELS, OWNERSHIP_CHANNEL } from './service-tables.ts'

const CALL_TIMEOUT_MS = 5000
const WRITE_SESSIONS = 16

export type RunningService = { readonly url: string; close(): Promise<void> }

// Read anew at each login: a secret in a file may have been rotated meanwhile. The others come by environment.
const secrets = {
  read: async (reference: SecretReference): Promise<string> => {
    if ('file' in reference) return (await readFile(reference.file, 'utf8')).replace(/\r?\n$/, '')
    const value = 'env' in reference ? process.env[reference.env] : undefined
    if (value === undefined) throw new Error(`secret ${JSON.stringify(reference)} is not set`)
    return value
  },
}

/** The reference service of one region: HTTP, relay and inbox. */
export async function startService(config: ServiceConfig): Promise<RunningService> {
  const { region } = config
  const login = (of: DatabaseLogin, part: string) => ({
    login: of,
    secrets,
    name: `${region} database`,
    applicationName: `sandbox ${part}`,
    callTimeoutMs: CALL_TIMEOUT_MS,
  })
  const kafka = (of: string, stream: ServiceStream): KafkaConnection => ({
    login: stream,
    secrets,
    name: `${of} Kafka`,
    clientId: `sandbox-${region}`,
    callTimeoutMs: CALL_TIMEOUT_MS,
  })
  const writing = createServicePool({ ...login(config.database.writer, 'writer'), size: WRITE_SESSIONS })
  const relaying = createServicePool({ ...login(config.database.relay, 'relay'), size: 1 })
  const applying = createServicePool({ ...login(config.database.inbox, 'inbox'), size: 2 })
  const cache = createOwnershipCache()

  const publisher = createEventPublisher(kafka(region, config.kafka), config.kafka.outboxTopic)
  const relay = startRelay({ pool: relaying, publisher, outbox: OUTBOX })
  const inbox = startInbox({
    groupId: config.kafka.inboxGroup,
    sources: config.peers.map(p => ({ region: p.region, connection: kafka(p.region, p.kafka), topic: p.kafka.outboxTopic })),
    store: createInboxStore(applying, INBOX, IDEMPOTENCY, accountApplier),
    held: createHeldEvents(),
  })
  const woken = listenFor(login(config.database.relay, 'relay'), OUTBOX_CHANNELS, {
    notified: () => relay.wake(),
    listening: () => relay.wake(),
  })
  const hints = listenFor(login(config.database.writer, 'ownership'), [OWNERSHIP_CHANNEL], {
    notified: (_, payload) => learn(cache, payload),
    listening: () => undefined,
  })
  const announced = followAnnouncements(
    kafka(region, config.kafka),
    { topic: config.kafka.ownershipTopic, groupPrefix: config.kafka.inboxGroup },
    a => cache.learn(a.key, a),
  )

  const writer = createGuardedWriter({
    region,
    pool: writing,
    outbox: OUTBOX,
    idempotency: IDEMPOTENCY,
    cache,
    currentEpoch: async key => await currentEpoch(writing, region, key),
    committed: () => relay.wake(),
  })
  const peers = new Map(config.peers.flatMap(p => (p.url === null ? [] : [[p.region, p.url] as const])))
  const stats = () => ({ region, relay: relay.stats(), inbox: inbox.stats(), hints: cache.size, memoryBytes: process.memoryUsage.rss() })
  const server = createServer(handler({ region, writer, cache, peers, read: async tenant => await readTenant(writing, tenant), stats }))
  await listening(server, config.http.port)

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      // First nothing new comes in, then what was committed goes out.
      const closed = new Promise<void>(resolve => server.close(() => resolve()))
      server.closeIdleConnections()
      await Promise.race([closed, new Promise(resolve => setTimeout(resolve, 1000))])
      server.closeAllConnections()
      await Promise.all([woken.close(), hints.close(), announced.close(), inbox.close(), relay.close()])
      await Promise.all([publisher.close(), writing.close(), relaying.close(), applying.close()])
    },
  }
}

async function listening(server: Server, port: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', resolve)
  })
}

/** Null where this region is not the home, or its boundary is not installed yet. */
async function currentEpoch(pool: ServicePool, region: string, key: string): Promise<number | null> {
  const { rows } = await pool
    .query({ name: 'boundary-read', sql: 'select home_region, epoch from homeregion.read($1)', parameters: [key] })
    .catch(() => ({ rows: [] }))
  const [row] = rows
  return row?.['home_region'] === region ? (row['epoch'] as number) : null
}

async function readTenant(pool: ServicePool, tenant: string) {
  const { rows } = await pool.query({
    name: 'account-read',
    sql: 'select account_id, version, billing_address from public.account where tenant_id = $1 order by account_id limit 1000',
    parameters: [tenant],
  })
  return rows.map(r => ({ accountId: r['account_id'] as string, version: r['version'] as number, address: r['billing_address'] as string }))
}

function learn(cache: OwnershipCache, payload: string): void {
  const announcement = parseAnnouncement(payload)
  if (announcement !== null) cache.learn(announcement.key, announcement)
}
