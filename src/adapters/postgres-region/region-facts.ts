import { BOUNDARY_FENCE } from '../../domain/fence.ts'
import type { RegionConditions, RegionFacts } from '../../domain/ports.ts'
import type { Connection, Row, Rows } from '../postgres/connection.ts'
import { sqlstate } from './boundary-error.ts'
import type { BoundaryExpectation } from './boundary-sql.ts'
import { sqlText } from './sql-file.ts'
import { ALL_REGIONS, type WriterRegion } from './topology.ts'

/** Missing, disabled, altered or extra guards, one line each, by the catalogue; empty when all stand as `expected`. */
export async function guardProblems(connection: Connection, expected: BoundaryExpectation): Promise<readonly string[]> {
  const { rows } = await connection.query('read', sqlText('problems.sql'), [
    JSON.stringify(expected.triggers),
    JSON.stringify(expected.functions),
  ])
  const shared = expected.writers === null ? [] : await sharedProblems(connection, expected.writers)
  return [...rows.map(row => String(row.problem)), ...shared]
}

/** What ties the boundary of a shared database to the control plane, and logins to regions. */
async function sharedProblems(connection: Connection, writers: readonly WriterRegion[]): Promise<readonly string[]> {
  const { rows } = await connection.query('read', sqlText('problems-shared.sql'))
  const found = rows[0] ?? {}
  const tied = found.tied === true ? [] : ['homeregion_control.ownership: trigger zzz_homeregion_authority is missing or disabled']
  if (found.present !== true) return [...tied, 'table homeregion.writer_region does not exist']
  const assigned = await connection.query(
    'read',
    `select coalesce(m.role, w.role)::text as role, m.region as installed, w.region as configured
     from homeregion.writer_region m full join jsonb_to_recordset($1::jsonb) as w(role name, region text) on w.role = m.role
     where m.region is distinct from w.region order by 1`,
    [JSON.stringify(writers)],
  )
  return [
    ...tied,
    ...assigned.rows.map(
      r => `login ${String(r.role)} writes for ${text(r.installed)} by the boundary, for ${text(r.configured)} by the configuration`,
    ),
  ]
}

function text(region: unknown): string {
  return typeof region === 'string' ? region : 'no region'
}

const OPERATIONS = [
  'read(text)',
  'claim(text, text, bigint, bigint)',
  'drain(text, bigint, bigint)',
  'in_flight(text, integer)',
  'fence(text, bigint, bigint, text)',
  'open(text, bigint, bigint)',
  'follow(text, text, bigint, bigint)',
  'register(text[], text[], bigint[])',
  'rejections()',
  'standbys(pg_lsn)',
  'fence_region(text, text, text, text, text)',
  'settle_region(text, text)',
  'lift_region(text, text, bigint)',
  'region_in_flight(text, integer)',
  'writable_keys(text)',
  'read_clock()',
  'grant_lease(text, bigint, timestamp with time zone)',
  'lease_stops(text)',
] as const

/** `observed`: quoted names of the tables that proofs are read from. */
export async function regionFacts(
  connection: Connection,
  expected: BoundaryExpectation,
  observed: readonly string[],
  region: string,
): Promise<RegionFacts> {
  const [server, installed, problems, missing, own] = await Promise.all([
    connection.query(
      'read',
      `select current_setting('server_version') as version, pg_is_in_recovery() as in_recovery,
              current_setting('transaction_read_only') = 'on' as read_only,
              current_setting('max_prepared_transactions')::int as prepared`,
    ),
    absentAsNull(connection.query('read', 'select region, version from homeregion.installed')),
    guardProblems(connection, expected),
    connection.query('read', MISSING_PRIVILEGES, [OPERATIONS.map(o => `homeregion.${o}`), observed]),
    readConditions(connection, expected, region),
  ])
  const found = installed?.rows[0]
  return {
    region: found === undefined ? null : servedRegion(String(found.region), expected, region),
    boundaryVersion: found === undefined ? null : Number(found.version),
    serverVersion: String(server.rows[0]?.version),
    inRecovery: server.rows[0]?.in_recovery === true,
    readOnly: server.rows[0]?.read_only === true,
    guardProblems: problems,
    missingPrivileges: missing.rows.map(row => String(row.privilege)),
    ...own,
    maxPreparedTransactions: Number(server.rows[0]?.prepared),
  }
}

/** What the boundary goes by for every key of the region at once; two small queries, one round trip. */
export async function readConditions(
  connection: Connection,
  { stopping }: Pick<BoundaryExpectation, 'stopping'>,
  region: string,
): Promise<RegionConditions> {
  const [fence, lease] = await Promise.all([
    absentAsNull(
      connection.query('read', 'select since, reason from homeregion.fence where region = $1 and name = $2', [region, BOUNDARY_FENCE]),
    ),
    absentAsNull(connection.query('read', LEASE, [region])),
  ])
  const fenced = fence?.rows[0]
  return {
    fencedSince: fenced === undefined ? null : isoTime(fenced.since),
    fencedReason: fenced === undefined ? null : String(fenced.reason),
    lease: leaseFacts(lease?.rows[0]),
    writesNeedLease: stopping.includes(region),
  }
}

const LEASE = `select generation, ceil(extract(epoch from expires_at - clock_timestamp()) * 1000)::float8 as left_ms
from homeregion.lease where region = $1`

function leaseFacts(row: Row | undefined): RegionFacts['lease'] {
  return row === undefined ? null : { generation: Number(row.generation), leftMs: Number(row.left_ms) }
}

/** A boundary that is not there, or that the login may not look at, is told by `missingPrivileges` and by what could not be read. */
async function absentAsNull(answer: Promise<Rows>): Promise<Rows | null> {
  return await answer.catch((error: unknown) => {
    if (['42P01', '3F000', '42501'].includes(sqlstate(error) ?? '')) return null
    throw error
  })
}

export function isoTime(value: unknown): string {
  return value instanceof Date ? value.toISOString() : String(value)
}

/** A shared database is every region's that the boundary's installation named; `guardProblems` holds its logins against the configuration. */
function servedRegion(installed: string, expected: BoundaryExpectation, region: string): string {
  return installed === ALL_REGIONS && expected.writers !== null ? region : installed
}

const MISSING_PRIVILEGES = `
select format('EXECUTE on %s', f.name) as privilege from unnest($1::text[]) f(name)
where has_function_privilege(to_regprocedure(f.name)::oid, 'execute') is not true
union all
select format('SELECT on %s', t.name) from unnest($2::text[]) t(name)
where to_regclass(t.name) is not null and has_table_privilege(to_regclass(t.name)::oid, 'select') is not true
union all
select format('SELECT on %s', t.name) from unnest(array['homeregion.installed', 'homeregion.state', 'homeregion.guarded', 'homeregion.fence', 'homeregion.lease']) t(name)
-- What is not there lacks no privilege: it tells a login that may not look from a database without a boundary.
where to_regclass(t.name) is not null and has_table_privilege(to_regclass(t.name)::oid, 'select') is not true`
