import { readFileSync } from 'node:fs'
import pg from 'pg'
import { packageFile } from '../src/adapters/files/package-root.ts'
import { scramVerifier } from '../src/adapters/postgres-region/scram-verifier.ts'
import { APP_DATABASE, CONTROL_PLANE_DATABASE } from './layout.ts'

/** Login roles of a region's database. The names of their secrets are `<region>.<role>`. */
const REGION_LOGINS = ['app_writer', 'app_relay', 'app_inbox', 'homeregion_operator'] as const
export type RegionLogin = (typeof REGION_LOGINS)[number]

/** Roles, database and tables of one region's service; repeatable. `password` gives the secret of a login. */
export async function prepareRegionDatabase(adminUrl: string, password: (role: RegionLogin) => string): Promise<void> {
  await withClient(adminUrl, async client => {
    for (const role of ['app_owner', 'homeregion_apply']) await ensureRole(client, role, null)
    for (const role of REGION_LOGINS) await ensureRole(client, role, password(role))
    // The boundary admits copies of foreign writes from members of homeregion_apply, and from nobody else.
    await client.query('grant homeregion_apply to app_inbox')
    // Whose transaction is open, and since when: pg_stat_activity hides it from ordinary logins.
    await client.query('grant pg_read_all_stats to homeregion_operator')
    await ensureDatabase(client, APP_DATABASE)
    await client.query(`revoke connect, temporary on database ${APP_DATABASE} from public`)
    await client.query(`grant connect on database ${APP_DATABASE} to ${REGION_LOGINS.join(', ')}`)
  })
  await withClient(databaseUrl(adminUrl, APP_DATABASE), async client => {
    await client.query('grant create on schema public to app_owner')
    await client.query(readFileSync(packageFile('sandbox', 'sql', 'business.sql'), 'utf8'))
  })
}

export async function prepareControlPlaneDatabase(adminUrl: string, password: string): Promise<void> {
  await withClient(adminUrl, async client => {
    await ensureRole(client, 'homeregion_operator', password)
    await ensureDatabase(client, CONTROL_PLANE_DATABASE)
    await client.query(`revoke connect, temporary on database ${CONTROL_PLANE_DATABASE} from public`)
    await client.query(`grant connect on database ${CONTROL_PLANE_DATABASE} to homeregion_operator`)
  })
}

/** The same server and login, another database. */
export function databaseUrl(url: string, database: string): string {
  const changed = new URL(url)
  changed.pathname = `/${database}`
  return changed.toString()
}

const LIMITS = { connectionTimeoutMillis: 10_000, statement_timeout: 30_000 }

export async function withClient(url: string, work: (client: pg.Client) => Promise<void>, limits = LIMITS): Promise<void> {
  const client = new pg.Client({ connectionString: url, ...limits })
  client.on('error', () => undefined)
  await client.connect()
  try {
    await work(client)
  } finally {
    await client.end()
  }
}

async function ensureRole(client: pg.Client, role: string, password: string | null): Promise<void> {
  const { rowCount } = await client.query('select 1 from pg_catalog.pg_roles where rolname = $1', [role])
  const name = client.escapeIdentifier(role)
  if (rowCount === 0) await client.query(`create role ${name} nologin`)
  if (password !== null) await client.query(`alter role ${name} login password ${client.escapeLiteral(scramVerifier(password))}`)
}

async function ensureDatabase(client: pg.Client, database: string): Promise<void> {
  const { rowCount } = await client.query('select 1 from pg_catalog.pg_database where datname = $1', [database])
  if (rowCount === 0) await client.query(`create database ${client.escapeIdentifier(database)}`)
}
