import { randomUUID } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { databaseUrl } from '../../sandbox/databases.ts'
import { APP_DATABASE } from '../../sandbox/layout.ts'
import type { PostgresVersion } from '../../sandbox/postgres-binaries.ts'
import { createBoundaryFence } from '../../src/adapters/postgres-region/fences/boundary.ts'
import { createReadOnlyFence } from '../../src/adapters/postgres-region/fences/read-only.ts'
import { createRegionDatabase } from '../../src/adapters/postgres-region/region-database.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { Config, RegionConfig } from '../../src/domain/config.ts'
import type { Fence } from '../../src/domain/fence.ts'
import type { RegionDatabase } from '../../src/domain/ports.ts'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'
import { fenceOf } from './credentials-fence-of.ts'
import { accessLists } from './read-only-fixture.ts'

export const PASSWORD = 'throwaway-of-one-test'
/** Where a subscription of the region takes its rows from: another database of the same server. */
export const PUBLISHER = 'elsewhere'
// How long a fence waits for a transaction that does not end: each such cell of the table takes this long.
const CALL_TIMEOUT_MS = 1_500

/** One write that is to be tried: its key, and the row that shows whether it went through. */
export type Attempt = { readonly key: string; readonly id: string }

export type MatrixScene = {
  readonly version: PostgresVersion
  readonly port: number
  readonly admin: pg.Client
  readonly publisher: pg.Client
  readonly db: RegionDatabase
  readonly fences: Readonly<Record<'boundary' | 'credentials' | 'read-only', Fence>>
  /** The secret that the service has: what it read last. */
  secret(): string
  login(role: string, at?: { readonly port?: number; readonly password?: string }): Promise<pg.Client>
  /** A key that nobody used; `home` where it is at home. */
  key(home: 'region-a' | 'region-b'): Promise<string>
  landed(attempt: Attempt): Promise<boolean>
  /** What every fence has to leave as it was: logins, memberships, every access list, the boundary's own rows, the fences on record. */
  state(): Promise<readonly string[]>
  /** Secrets are read anew, as a new process would. */
  forget(): void
  stop(): Promise<void>
}

export async function startMatrixScene(version: PostgresVersion): Promise<MatrixScene> {
  const fixture = await startRegion({ version })
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-matrix-'))
  const file = join(dir, 'app_writer')
  writeFileSync(file, PASSWORD)
  const admin = await fixture.login('postgres')
  const clients: pg.Client[] = []
  const open = async (url: string, password?: string): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
    if (password !== undefined) client.password = password
    client.on('error', () => undefined)
    await client.connect()
    clients.push(client)
    return client
  }
  // A worker that was refused is started again this soon; by default it is five seconds.
  await admin.query(`alter system set wal_retrieve_retry_interval = '200ms'`)
  await admin.query('select pg_reload_conf()')
  await admin.query(`create database ${PUBLISHER}`)
  const publisher = await open(databaseUrl(fixture.server.adminUrl, PUBLISHER))
  await publisher.query(
    'create table account (tenant_id text, account_id text, version bigint, billing_address text, primary key (tenant_id, account_id))',
  )
  await publisher.query('create publication p for table account')
  const { config, region } = configOf(fixture, file)
  const env = { PASSWORD, ADMIN: decodeURIComponent(new URL(fixture.server.adminUrl).password) }
  const secrets = createSecrets(env)
  const none = async () => undefined
  const db = createRegionDatabase(region, config, secrets)
  // Made anew for each use, as a command makes it: a fence remembers the secrets it has read.
  const fences = {
    boundary: createBoundaryFence(region, config, secrets, none),
    'read-only': createReadOnlyFence(region, { name: 'read-only', kind: 'read-only' }, config, secrets, none),
    credentials: renewed(() => fenceOf(region, config, env, none)),
  }
  const url = (role: string, port: number) => `postgres://${role}@127.0.0.1:${port}/${APP_DATABASE}`
  let keys = 0
  return {
    version,
    port: fixture.server.port,
    admin,
    publisher,
    db,
    fences,
    secret: () => readFileSync(file, 'utf8'),
    login: async (role, at = {}) =>
      await open(
        role === 'postgres' ? databaseUrl(fixture.server.adminUrl, APP_DATABASE) : url(role, at.port ?? fixture.server.port),
        role === 'postgres' ? undefined : (at.password ?? (role === 'app_writer' ? readFileSync(file, 'utf8') : PASSWORD)),
      ),
    key: async home => {
      keys += 1
      const key = `key-${keys}-${randomUUID().slice(0, 8)}`
      await db.register([{ key, homeRegion: home, epoch: 1 }])
      return key
    },
    landed: async ({ id }) => (await admin.query('select 1 from account where account_id = $1', [id])).rowCount === 1,
    state: async () => [...(await accessLists(admin)), ...(await otherState(admin))],
    forget: () => secrets.forget(),
    stop: async () => {
      await Promise.all([db.close(), ...Object.values(fences).map(async f => await f.close())])
      await Promise.all(clients.map(async c => await c.end().catch(() => undefined)))
      await fixture.stop()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

async function otherState(admin: pg.Client): Promise<readonly string[]> {
  const { rows } = await admin.query<{ line: string }>(`
    select format('%s login %s until %s %s', rolname, rolcanlogin, rolvaliduntil,
                  -- The rotated secret is what a fence of credentials is for, and stays.
                  case when rolname <> 'app_writer' then md5(rolpassword) end) as line from pg_authid
    union all select format('%s in %s by %s %s', member::regrole, roleid::regrole, grantor::regrole, admin_option) from pg_auth_members
    union all select format('writable %s', key) from homeregion.writable
    union all select format('fence %s %s', name, state) from homeregion.fence
    union all select format('fence item %s', to_jsonb(i)) from homeregion.fence_item i
    union all select format('%s %s %s', tgrelid::regclass, tgname, tgenabled) from pg_trigger where not tgisinternal
    order by 1`)
  return rows.map(r => r.line)
}

function configOf(fixture: RegionFixture, file: string): { readonly config: Config; readonly region: RegionConfig } {
  const region: RegionConfig = {
    ...fixture.region,
    database: { ...fixture.region.database, writers: fixture.region.database.writers.map(w => ({ ...w, password: { file } })) },
    fences: [
      { name: 'credentials', kind: 'credentials', roles: [{ role: 'app_writer', sink: { file } }] },
      { name: 'read-only', kind: 'read-only' },
    ],
  }
  const policy = { ...fixture.config.policy, callTimeoutMs: CALL_TIMEOUT_MS }
  return { region, config: { ...fixture.config, regions: [region], policy } }
}

/** Apply, proof and lift in a process each. */
function renewed(make: () => Fence): Fence {
  const once = async <T>(work: (fence: Fence) => Promise<T>): Promise<T> => {
    const fence = make()
    try {
      return await work(fence)
    } finally {
      await fence.close()
    }
  }
  const { region, name, kind } = make()
  return {
    region,
    name,
    kind,
    plan: async direction => await once(async f => await f.plan(direction)),
    apply: async cause => await once(async f => await f.apply(cause)),
    verify: async () => await once(async f => await f.verify()),
    lift: async (cause, asked) => await once(async f => await f.lift(cause, asked)),
    status: async () => await once(async f => await f.status()),
    close: async () => undefined,
  }
}
