import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { NO_FAILOVER } from '../../sandbox/config-defaults.ts'
import { databaseUrl, prepareRegionDatabase } from '../../sandbox/databases.ts'
import { APP_DATABASE } from '../../sandbox/layout.ts'
import { type PostgresServer, startPostgres } from '../../sandbox/postgres.ts'
import type { PostgresVersion } from '../../sandbox/postgres-binaries.ts'
import { installBoundary } from '../../src/adapters/postgres-region/install.ts'
import { createRegionDatabase } from '../../src/adapters/postgres-region/region-database.ts'
import type { Config, GuardedTable, RegionConfig } from '../../src/domain/config.ts'
import type { RegionDatabase } from '../../src/domain/ports.ts'

const PASSWORD = 'throwaway-of-one-test'
export const secrets = { read: async () => PASSWORD }

export type RegionFixture = {
  readonly server: PostgresServer
  readonly config: Config
  readonly region: RegionConfig
  readonly db: RegionDatabase
  /** A session that is closed with the fixture. */
  login(role: string, options?: string): Promise<pg.Client>
  stop(): Promise<void>
}

type Options = {
  readonly version?: PostgresVersion
  readonly name?: string
  readonly guarded?: readonly GuardedTable[]
  readonly defaultHome?: string | null
  /** SQL run as superuser in the service's database before the boundary is installed. */
  readonly prepare?: string
  readonly install?: boolean
}

/** One region's database with the reference service's tables and the boundary, on a cluster of its own. */
export async function startRegion(options: Options = {}): Promise<RegionFixture> {
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-boundary-'))
  const server = await startPostgres({ dir, version: options.version ?? 18 })
  const clients: pg.Client[] = []
  await prepareRegionDatabase(server.adminUrl, () => PASSWORD)
  const adminUrl = databaseUrl(server.adminUrl, APP_DATABASE)
  const open = async (url: string, password?: string): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
    if (password !== undefined) client.password = password
    client.on('error', () => undefined)
    await client.connect()
    clients.push(client)
    return client
  }
  if (options.prepare !== undefined) await (await open(adminUrl)).query(options.prepare)
  const config = fixtureConfig(server.port, new URL(adminUrl), options)
  const region = config.regions[0] as RegionConfig
  const admin = decodeURIComponent(new URL(adminUrl).password)
  if (options.install !== false) await installBoundary({ config, region, secrets: { read: async () => admin }, dryRun: false })
  const db = createRegionDatabase(region, config, secrets)
  return {
    server,
    config,
    region,
    db,
    login: async (role, extra) => {
      if (role === 'postgres') return await open(adminUrl)
      return await open(
        `postgres://${role}@127.0.0.1:${server.port}/${APP_DATABASE}${extra === undefined ? '' : `?options=${encodeURIComponent(extra)}`}`,
        PASSWORD,
      )
    },
    stop: async () => {
      await db.close()
      await Promise.all(clients.map(async c => await c.end().catch(() => undefined)))
      await server.stop()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

export function adminSecrets(fixture: RegionFixture): { read: () => Promise<string> } {
  const password = decodeURIComponent(new URL(fixture.server.adminUrl).password)
  return { read: async () => password }
}

export function fixtureConfig(port: number, admin: URL, options: Options): Config {
  const login = (role: string) => ({ url: `postgres://${role}@127.0.0.1:${port}/${APP_DATABASE}`, password: { env: 'PASSWORD' } })
  const region: RegionConfig = {
    name: options.name ?? 'region-a',
    database: {
      operator: login('homeregion_operator'),
      admin: { url: `postgres://${admin.username}@127.0.0.1:${port}/${APP_DATABASE}`, password: { env: 'ADMIN' } },
      writers: [{ ...login('app_writer'), role: 'app_writer' }],
      fencer: null,
      endpoints: [],
    },
    kafka: { brokers: [], ssl: false, sasl: null, outboxTopic: 'outbox', inboxGroup: 'inbox' },
    fences: [],
    lease: null,
    acceptedWriters: [],
  }
  const table = (name: string, versions: GuardedTable['versions']): GuardedTable => ({
    schema: 'public',
    table: name,
    key: 'tenant_id',
    guard: 'row',
    versions,
  })
  return {
    service: 'test',
    topology: 'independent',
    controlPlane: { operator: login('homeregion_operator'), admin: null },
    regions: [region],
    guarded: options.guarded ?? [table('account', { aggregate: 'account_id', version: 'version' }), table('invoice', null)],
    outbox: {
      schema: 'public',
      table: 'outbox',
      columns: {
        key: 'tenant_id',
        eventId: 'event_id',
        aggregateType: 'aggregate_type',
        aggregateId: 'aggregate_id',
        eventType: 'event_type',
        sourceRegion: 'source_region',
        homeRegion: 'home_region',
        ownerEpoch: 'owner_epoch',
        aggregateVersion: 'aggregate_version',
        occurredAt: 'occurred_at',
        payload: 'payload',
        publishedAt: 'published_at',
      },
    },
    inbox: {
      schema: 'public',
      table: 'inbox',
      columns: { eventId: 'event_id', key: 'tenant_id', ownerEpoch: 'owner_epoch', appliedAt: 'applied_at' },
    },
    idempotency: { schema: 'public', table: 'idempotency', key: 'tenant_id', id: 'idempotency_key' },
    transport: { relay: 'polling', mirror: 'none' },
    ownership: { topic: 'ownership', defaultHome: options.defaultHome ?? null },
    alarm: null,
    ...NO_FAILOVER,
    policy: { ...NO_FAILOVER.policy, maxKeys: 10, evidenceMaxAgeMs: 10_000, runLeaseMs: 10_000, callTimeoutMs: 5000 },
  }
}
