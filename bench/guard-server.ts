import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { NO_FAILOVER } from '../sandbox/config-defaults.ts'
import { startPostgres } from '../sandbox/postgres.ts'
import type { PostgresVersion } from '../sandbox/postgres-binaries.ts'
import { renderBoundary } from '../src/adapters/postgres-region/boundary-sql.ts'
import { guardFunctions, guardTriggers } from '../src/adapters/postgres-region/guards.ts'
import type { Config, GuardedTable, RegionConfig } from '../src/domain/config.ts'

export const PGBENCH = '/usr/lib/postgresql/15/bin/pgbench'
export const WRITER = 'bench_writer'
export const PASSWORD = 'throwaway-of-one-bench'

export type BenchServer = {
  readonly port: number
  readonly adminUrl: string
  /** `pgbench` where Debian has it, else sessions of this process, which take CPU from the server and so flatter the guard. */
  readonly driver: 'pgbench' | 'node'
  /** Between rounds: small tables, as fresh as at the start. */
  empty(): Promise<void>
  stop(): Promise<void>
}

const TABLES = `
  create table %.entry (tenant_id text not null, entry_id int not null, version bigint not null, primary key (tenant_id, entry_id)) with (fillfactor = 50);
  insert into %.entry select 'tenant-1', g, 1 from generate_series(1, 1000) g;
  create table %.event (id bigint generated always as identity primary key, tenant_id text not null, body text);
  create table %.request (id bigint generated always as identity primary key, tenant_id text not null, body text);
  create table %.bulk (id bigint generated always as identity primary key, tenant_id text not null, body text);
  grant usage on schema % to ${WRITER};
  grant select, insert, update on all tables in schema % to ${WRITER};`

/** Three equal sets of tables: with the boundary, with triggers of the same kinds that do nothing, and without. The writer is no superuser. */
/** `leased`: the region stops writes at its lease's end, which is far away. */
export async function startBenchServer(version: PostgresVersion, leased: boolean): Promise<BenchServer> {
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-bench-'))
  const server = await startPostgres({ dir, version })
  const admin = new pg.Client({ connectionString: server.adminUrl })
  await admin.connect()
  await admin.query(`create role ${WRITER} login password '${PASSWORD}'; create role bench_operator`)
  for (const schema of ['guarded', 'empty', 'plain']) await admin.query(`create schema ${schema}; ${TABLES.replaceAll('%', schema)}`)
  await admin.query('create table guarded.inbox (event_id text)')
  const { config, region } = benchConfig(leased)
  await admin.query('begin')
  for (const { sql } of renderBoundary(config, region).statements) await admin.query(sql)
  await admin.query('commit')
  await admin.query(`select homeregion.register(array['tenant-1'], array['region-a'], array[1])`)
  if (leased) await admin.query(`select homeregion.grant_lease('region-a', 1, clock_timestamp() + interval '1 day')`)
  await admin.query(emptyTriggers(config))
  await admin.query('vacuum analyze')
  return {
    port: server.port,
    adminUrl: server.adminUrl,
    driver: existsSync(PGBENCH) ? 'pgbench' : 'node',
    empty: async () => {
      for (const schema of ['guarded', 'empty', 'plain'])
        await admin.query(
          `alter table ${schema}.bulk disable trigger all; alter table ${schema}.event disable trigger all; alter table ${schema}.request disable trigger all;
           truncate ${schema}.bulk, ${schema}.event, ${schema}.request`,
        )
      await admin.query(enable(config))
      await admin.query('vacuum analyze')
      await admin.query('checkpoint')
    },
    stop: async () => {
      await admin.end()
      await server.stop()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

function triggersOf(config: Config) {
  return config.guarded.flatMap(t =>
    guardTriggers(
      { ...t, kind: t.guard },
      null,
      config.regions.some(r => r.lease !== null),
    ).map(trigger => ({ ...trigger, table: t.table })),
  )
}

/** The same events and levels, and functions with nothing in them. */
function emptyTriggers(config: Config): string {
  const f = guardFunctions('tenant_id')
  const shown = triggersOf(config).filter(t => [f.insert, f.update, f.inserted].includes(t.func as never) && t.enabled !== 'R')
  return `create function empty.nothing() returns trigger language plpgsql as $$ begin return new; end $$;
    ${shown.map(t => `create trigger ${t.name} ${t.event} on empty.${t.table} ${t.level} execute function empty.nothing();`).join('\n')}`
}

function enable(config: Config): string {
  const state = { A: 'always', R: 'replica', O: '' } as const
  return [
    ...triggersOf(config).map(t => `alter table guarded.${t.table} enable ${state[t.enabled]} trigger ${t.name};`),
    ...['bulk', 'event', 'request'].map(t => `alter table empty.${t} enable trigger all;`),
  ].join('\n')
}

function benchConfig(leased: boolean): { config: Config; region: RegionConfig } {
  const table = (name: string, guard: GuardedTable['guard']): GuardedTable => ({
    schema: 'guarded',
    table: name,
    key: 'tenant_id',
    guard,
    versions: null,
  })
  const operator = { url: 'postgres://bench_operator@127.0.0.1/postgres', password: null }
  const region: RegionConfig = {
    name: 'region-a',
    database: {
      operator,
      admin: null,
      fencer: null,
      writers: [{ url: 'postgres://127.0.0.1/', password: null, role: WRITER }],
      endpoints: [],
    },
    fences: [],
    lease: leased ? { durationMs: 86_400_000, marginMs: 1000, onAgentOutage: 'stop' } : null,
    kafka: { brokers: [], ssl: false, sasl: null, outboxTopic: '', inboxGroup: '' },
    acceptedWriters: [],
  }
  const event = {
    eventId: 'id',
    key: 'tenant_id',
    aggregateType: 'body',
    aggregateId: 'body',
    eventType: 'body',
    sourceRegion: 'body',
    homeRegion: 'body',
  }
  const config: Config = {
    service: 'bench',
    topology: 'independent',
    controlPlane: { operator, admin: null },
    regions: [region],
    guarded: [table('entry', 'row'), table('event', 'row'), table('request', 'row'), table('bulk', 'statement')],
    // Guarded like a business table here: the load only inserts, which is the same function.
    outbox: {
      schema: 'guarded',
      table: 'event',
      columns: { ...event, ownerEpoch: 'body', aggregateVersion: 'body', occurredAt: 'body', payload: null, publishedAt: null },
    },
    inbox: {
      schema: 'guarded',
      table: 'inbox',
      columns: { eventId: 'event_id', key: 'event_id', ownerEpoch: 'event_id', appliedAt: 'event_id' },
    },
    idempotency: null,
    transport: { relay: 'debezium', mirror: 'none' },
    ownership: { topic: '', defaultHome: null },
    alarm: null,
    ...NO_FAILOVER,
    policy: { ...NO_FAILOVER.policy, maxKeys: 1, evidenceMaxAgeMs: 1, runLeaseMs: 1, callTimeoutMs: 5000 },
  }
  return { config, region }
}
