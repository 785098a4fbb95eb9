import { randomBytes } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { parse, stringify } from 'yaml'
import { databaseUrl } from '../../sandbox/databases.ts'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import type { CliOptions, CliResult, CliRun } from '../rig/cli.ts'
import type { Rig } from '../rig/rig.ts'
import type { WrittenConfig, WrittenLogin } from './config-copy.ts'

export type SharedDatabase = {
  readonly config: string
  cli(args: readonly string[], options?: CliOptions): Promise<CliResult>
  startCli(args: readonly string[], options?: CliOptions): CliRun
  /** SQLSTATE of a real, committed write as a region's writer under the epoch it reads, or null when it is admitted. */
  write(region: 'region-a' | 'region-b', key: string): Promise<string | null>
  /** `STATE home epoch N` on record and at the boundary. */
  ownership(key: string): Promise<{ readonly record: string; readonly boundary: string }>
  /** As superuser, for what no command does. */
  query(sql: string, parameters: readonly string[]): Promise<unknown>
  stop(): Promise<void>
}

const WRITERS = { 'region-a': 'shared_writer_a', 'region-b': 'shared_writer_b' } as const

/** A database on region-a's server for both regions and the control plane, with the service's tables and nothing of ours; Kafka is the rig's. */
export async function createSharedDatabase(rig: Rig, dir: string): Promise<SharedDatabase> {
  const adminUrl = rig.running.regions['region-a'].postgres.adminUrl
  const name = `shared_${randomBytes(3).toString('hex')}`
  const password = randomBytes(9).toString('hex')
  const passwordFile = join(dir, `${name}.password`)
  writeFileSync(passwordFile, password, { mode: 0o600 })
  const clients: pg.Client[] = []
  const open = async (url: string): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
    client.on('error', () => undefined)
    await client.connect()
    clients.push(client)
    return client
  }
  const server = await open(adminUrl)
  await server.query(`create database ${name}`)
  for (const role of Object.values(WRITERS)) {
    await server.query(`drop role if exists ${role}`)
    await server.query(`create role ${role} login password '${password}' in role app_writer`)
  }
  const sharedUrl = databaseUrl(adminUrl, name)
  const admin = await open(sharedUrl)
  await admin.query('grant create on schema public to app_owner')
  await admin.query(readFileSync(packageFile('sandbox', 'sql', 'business.sql'), 'utf8'))
  const writerUrl = (role: string, secret = '') => {
    const url = new URL(sharedUrl)
    url.username = role
    url.password = secret
    return url.toString()
  }
  const config = join(dir, `${name}.yaml`)
  writeFileSync(
    config,
    configText(rig, name, role => ({ url: writerUrl(role), password: { file: passwordFile } })),
  )
  const writers = {
    'region-a': await open(writerUrl(WRITERS['region-a'], password)),
    'region-b': await open(writerUrl(WRITERS['region-b'], password)),
  }
  const withConfig = (options: CliOptions = {}): CliOptions => ({ ...options, env: { HOMEREGION_CONFIG: config, ...options.env } })
  return {
    config,
    cli: async (args, options) => await rig.cli(args, withConfig(options)),
    startCli: (args, options) => rig.startCli(args, withConfig(options)),
    write: async (region, key) => {
      const client = writers[region]
      try {
        await client.query(`select set_config('homeregion.epoch', coalesce((select epoch::text from homeregion.read($1)), ''), false)`, [
          key,
        ])
        await client.query(
          `insert into public.account (tenant_id, account_id, version, billing_address) values ($1, gen_random_uuid()::text, 1, 'x')`,
          [key],
        )
        return null
      } catch (error) {
        return error instanceof pg.DatabaseError ? (error.code ?? 'no code') : String(error)
      }
    },
    ownership: async key => {
      const say = `format('%s %s epoch %s', state, home_region, epoch) as text`
      const record = await admin.query<{ text: string }>(`select ${say} from homeregion_control.ownership where key = $1`, [key])
      const boundary = await admin.query<{ text: string }>(`select ${say} from homeregion.ownership where key = $1`, [key])
      return { record: record.rows[0]?.text ?? 'unknown', boundary: boundary.rows[0]?.text ?? 'unknown' }
    },
    query: async (sql, parameters) => await admin.query(sql, [...parameters]),
    stop: async () => {
      await Promise.all(clients.filter(c => c !== server).map(async c => await c.end().catch(() => undefined)))
      await server.query(`drop database if exists ${name} with (force)`)
      for (const role of Object.values(WRITERS)) await server.query(`drop role if exists ${role}`)
      await server.end()
    },
  }
}

function configText(rig: Rig, database: string, writer: (role: string) => WrittenLogin): string {
  type Written = WrittenConfig & { topology: string; controlPlane: { admin: WrittenLogin } }
  const config = parse(readFileSync(rig.config, 'utf8')) as Written
  const there = (login: WrittenLogin): WrittenLogin => ({ ...login, url: databaseUrl(login.url, database) })
  const regionA = config.regions['region-a'].database as Written['regions']['region-a']['database'] & { admin: WrittenLogin }
  const shared = { operator: there(regionA.operator), admin: there(regionA.admin) }
  config.topology = 'shared'
  config.controlPlane = { ...shared.operator, admin: shared.admin }
  for (const region of ['region-a', 'region-b'] as const) {
    // The sandbox's fences are of a login that does not write here.
    config.regions[region] = { ...config.regions[region], database: { ...shared, writers: [writer(WRITERS[region])] }, fences: [] }
  }
  return stringify(config, { aliasDuplicateObjects: false })
}
