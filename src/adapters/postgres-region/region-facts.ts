import type { RegionFacts } from '../../domain/ports.ts'
import type { Connection } from '../postgres/connection.ts'
import { sqlstate } from './boundary-error.ts'
import type { BoundaryExpectation } from './boundary-sql.ts'
import { sqlText } from './sql-file.ts'

/** Missing, disabled, altered or extra guards, one line each, by the catalogue; empty when all stand as `expected`. */
export async function guardProblems(connection: Connection, expected: BoundaryExpectation): Promise<readonly string[]> {
  const { rows } = await connection.query('read', sqlText('problems.sql'), [
    JSON.stringify(expected.triggers),
    JSON.stringify(expected.functions),
  ])
  return rows.map(row => String(row.problem))
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
] as const

/** `observed`: quoted names of the tables that proofs are read from. */
export async function regionFacts(
  connection: Connection,
  expected: BoundaryExpectation,
  observed: readonly string[],
): Promise<RegionFacts> {
  const [server, installed, problems, missing] = await Promise.all([
    connection.query(
      'read',
      `select current_setting('server_version') as version, pg_is_in_recovery() as in_recovery,
              current_setting('transaction_read_only') = 'on' as read_only`,
    ),
    connection.query('read', 'select region, version from homeregion.installed').catch((error: unknown) => {
      if (['42P01', '3F000', '42501'].includes(sqlstate(error) ?? '')) return null
      throw error
    }),
    guardProblems(connection, expected),
    connection.query('read', MISSING_PRIVILEGES, [OPERATIONS.map(o => `homeregion.${o}`), observed]),
  ])
  const found = installed?.rows[0]
  return {
    region: found === undefined ? null : String(found.region),
    boundaryVersion: found === undefined ? null : Number(found.version),
    serverVersion: String(server.rows[0]?.version),
    inRecovery: server.rows[0]?.in_recovery === true,
    readOnly: server.rows[0]?.read_only === true,
    guardProblems: problems,
    missingPrivileges: missing.rows.map(row => String(row.privilege)),
  }
}

const MISSING_PRIVILEGES = `
select format('EXECUTE on %s', f.name) as privilege from unnest($1::text[]) f(name)
where has_function_privilege(to_regprocedure(f.name)::oid, 'execute') is not true
union all
select format('SELECT on %s', t.name) from unnest($2::text[]) t(name)
where to_regclass(t.name) is not null and has_table_privilege(to_regclass(t.name)::oid, 'select') is not true
union all
select format('SELECT on %s', t.name) from unnest(array['homeregion.installed', 'homeregion.state', 'homeregion.guarded']) t(name)
-- What is not there lacks no privilege: it tells a login that may not look from a database without a boundary.
where to_regclass(t.name) is not null and has_table_privilege(to_regclass(t.name)::oid, 'select') is not true`
