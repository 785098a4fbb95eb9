import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { databaseUrl, prepareRegionDatabase } from '../../sandbox/databases.ts'
import { APP_DATABASE } from '../../sandbox/layout.ts'
import { startPostgres } from '../../sandbox/postgres.ts'
import { createControlPlane } from '../../src/adapters/control-plane/control-plane-store.ts'
import { createRegionDatabase } from '../../src/adapters/postgres-region/region-database.ts'
import type { Config, RegionConfig } from '../../src/domain/config.ts'
import type { ControlPlane, RegionDatabase } from '../../src/domain/ports.ts'
import { fixtureConfig } from './boundary-fixture.ts'

const PASSWORD = 'throwaway-of-one-test'

export type SharedFixture = {
  readonly config: Config
  readonly regionA: RegionConfig
  readonly regionB: RegionConfig
  readonly secrets: { read(reference: unknown): Promise<string> }
  readonly password: string
  readonly store: ControlPlane
  readonly a: RegionDatabase
  readonly b: RegionDatabase
  /** A session that is closed with the fixture. */
  login(role: string, options?: string): Promise<pg.Client>
  stop(): Promise<void>
}

/** Roles that may write the tables, beside the two writers: one that no region claims, and one that may act as both writers. */
const ROLES = ['writer_a', 'writer_b', 'writer_nobody', 'writer_both']

/** One cluster with one database for two regions and the control plane; neither boundary nor control plane is installed. */
export async function startShared(): Promise<SharedFixture> {
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-shared-'))
  const server = await startPostgres({ dir, version: 18 })
  await prepareRegionDatabase(server.adminUrl, () => PASSWORD)
  const adminUrl = databaseUrl(server.adminUrl, APP_DATABASE)
  const clients: pg.Client[] = []
  const open = async (url: string): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
    client.on('error', () => undefined)
    await client.connect()
    clients.push(client)
    return client
  }
  const admin = await open(adminUrl)
  for (const role of ROLES) await admin.query(`create role ${role} login password '${PASSWORD}' in role app_writer`)
  await admin.query(`grant writer_a, writer_b to writer_both; grant connect on database ${APP_DATABASE} to app_writer`)
  const config = sharedConfig(server.port, new URL(adminUrl))
  const [regionA, regionB] = config.regions as [RegionConfig, RegionConfig]
  const superuser = decodeURIComponent(new URL(adminUrl).password)
  const secrets: SharedFixture['secrets'] = {
    read: async reference => (JSON.stringify(reference).includes('ADMIN') ? superuser : PASSWORD),
  }
  const store = createControlPlane(config, secrets)
  const [a, b] = [createRegionDatabase(regionA, config, secrets), createRegionDatabase(regionB, config, secrets)]
  return {
    ...{ config, regionA, regionB, secrets, store, a, b, password: PASSWORD },
    login: async (role, extra) => {
      if (role === 'postgres') return await open(adminUrl)
      const options = extra === undefined ? '' : `?options=${encodeURIComponent(extra)}`
      return await open(`postgres://${role}:${PASSWORD}@127.0.0.1:${server.port}/${APP_DATABASE}${options}`)
    },
    stop: async () => {
      await Promise.all([store.close(), a.close(), b.close(), ...clients.map(async c => await c.end().catch(() => undefined))])
      await server.stop()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

function sharedConfig(port: number, admin: URL): Config {
  const one = fixtureConfig(port, admin, {})
  const [first] = one.regions as [RegionConfig]
  const { operator, admin: superuser } = first.database
  const region = (name: string, role: string): RegionConfig => ({
    ...first,
    name,
    database: { ...first.database, writers: [{ ...operator, url: operator.url.replace('homeregion_operator', role), role }] },
    acceptedWriters: [{ kind: 'superuser', subject: 'postgres', reason: 'sets the test up' }],
  })
  return {
    ...one,
    topology: 'shared',
    controlPlane: { operator, admin: superuser },
    regions: [region('region-a', 'writer_a'), region('region-b', 'writer_b')],
  }
}
