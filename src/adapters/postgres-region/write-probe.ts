import pg from 'pg'
import type { ProbeResult } from '../../domain/boundary.ts'
import { SQLSTATE } from '../../domain/boundary.ts'
import type { Config, RegionConfig } from '../../domain/config.ts'
import { isHomeregionError } from '../../domain/errors.ts'
import { type Connection, createConnection, errorText, type Rows, type Secrets } from '../postgres/connection.ts'
import { sqlstate } from './boundary-error.ts'
import { type Guard, guards } from './guards.ts'
import { identifier, plainName, relation } from './quoting.ts'

export type WriteProbe = {
  /** Opens the writers' sessions before time matters. Failures show in the probes. */
  warm(): Promise<void>
  probe(key: string, epoch: number | null, isolation: ProbeResult['isolation']): Promise<readonly ProbeResult[]>
  close(): Promise<void>
}

/** Writes as each declared writer, by its real login, into each guarded table; one round trip for all tables, always rolled back. */
export function createWriteProbe(region: RegionConfig, config: Config, secrets: Secrets): WriteProbe {
  const writers = region.database.writers.map(writer => ({
    role: writer.role,
    connection: createConnection({
      login: writer,
      secrets,
      name: `${region.name} database as ${writer.role}`,
      applicationName: 'homeregion probe',
      callTimeoutMs: config.policy.callTimeoutMs,
      unreachable: 'region-unreachable',
    }),
  }))
  const tables = guards(config)
  return {
    warm: async () => {
      await Promise.allSettled(writers.map(async w => await w.connection.warm()))
    },
    probe: async (key, epoch, isolation) => {
      const all = writers.map(async ({ role, connection }) => {
        return await probeAs(role, connection, tables, key, epoch, isolation)
      })
      return (await Promise.all(all)).flat()
    },
    close: async () => {
      await Promise.all(writers.map(async w => await w.connection.close()))
    },
  }
}

const NO_TABLE = { schema: '?', table: '?' }

type Answer = Pick<ProbeResult, 'outcome' | 'sqlstate' | 'message' | 'role'>

/** One writer's probes over a session of its own, wherever that leads. */
export async function probeAs(
  writer: string,
  connection: Connection,
  tables: readonly Guard[],
  key: string,
  epoch: number | null,
  isolation: ProbeResult['isolation'],
): Promise<readonly ProbeResult[]> {
  const answers = await probeWriter(connection, tables, key, epoch, isolation)
  return answers.map((answer, i): ProbeResult => ({ writer, table: plainName(tables[i] ?? NO_TABLE), isolation, ...answer }))
}

async function probeWriter(
  connection: Connection,
  tables: readonly Guard[],
  key: string,
  epoch: number | null,
  isolation: ProbeResult['isolation'],
): Promise<readonly Answer[]> {
  try {
    // Open first: statements that wait for a session to open could leave in another order.
    await connection.warm()
  } catch (error) {
    return tables.map(() => notDecided(error))
  }
  return await Promise.all(tables.map(async table => await probeTable(connection, table, key, epoch, isolation)))
}

async function probeTable(
  connection: Connection,
  table: Guard,
  key: string,
  epoch: number | null,
  isolation: ProbeResult['isolation'],
): Promise<Answer> {
  const insert = await rolledBack(connection, { sql: insertProbe(table), table, key, epoch, isolation, rowNeeded: false })
  if (insert.outcome !== 'unknown' || insert.sqlstate === null || table.kind === 'statement') return insert
  // No partition takes a row that has only its key, or a trigger of the service came first: rewrite a row that is there.
  const update = await rolledBack(connection, { sql: updateProbe(table), table, key, epoch, isolation, rowNeeded: true })
  return update.outcome === 'unknown' && update.sqlstate === null ? insert : update
}

type Probe = { sql: string; table: Guard; key: string; epoch: number | null; isolation: ProbeResult['isolation']; rowNeeded: boolean }

/** One transaction, sent whole: whatever the probe statement answers, the rollback is behind it on the same session. */
async function rolledBack(connection: Connection, probe: Probe): Promise<Answer> {
  const permit = probe.epoch === null ? '' : String(probe.epoch)
  const [begun, set, probed, undone] = await Promise.allSettled([
    connection.query('read', `begin transaction isolation level ${probe.isolation}`),
    connection.query(
      'read',
      `select session_user::text as role, set_config('homeregion.epoch', $1, true), set_config('homeregion.probe', $2, true),
              set_config('lock_timeout', '1s', true)`,
      [permit, probe.table.kind === 'statement' ? probe.key : ''],
    ),
    connection.query('read', probe.sql, [probe.key]),
    connection.query('read', 'rollback'),
  ])
  for (const step of [begun, set, undone]) if (step.status === 'rejected') return notDecided(step.reason)
  const role = set.status === 'fulfilled' ? set.value.rows[0]?.role : null
  return { ...decided(probed, probe.rowNeeded), role: typeof role === 'string' ? role : null }
}

/**
 * A write that the guard decides before anything else can. A row with nothing but its key meets the BEFORE trigger before its missing
 * columns are noticed; a bulk-loaded table has a trigger that checks the key of an INSERT of no rows.
 */
function insertProbe(table: Guard): string {
  const insert = `insert into ${relation(table)} (${identifier(table.key)})`
  return table.kind === 'statement' ? `${insert} select null where $1::text is null` : `${insert} values ($1)`
}

function updateProbe(table: Guard): string {
  const [name, key] = [relation(table), identifier(table.key)]
  return `update ${name} set ${key} = ${key} where (tableoid, ctid) in (select tableoid, ctid from ${name} where ${key} = $1 limit 1)`
}

// 40001: the snapshot is older than a change of ownership, which is the boundary's refusal too. 42501: refused by privilege, 25006: by a standby
// or a read-only default, not by the boundary; whoever reads the result tells them apart by the SQLSTATE.
const REFUSALS: readonly string[] = [
  SQLSTATE.notHome,
  SQLSTATE.staleEpoch,
  SQLSTATE.unknownKey,
  SQLSTATE.leaseOver,
  SQLSTATE.regionFenced,
  '40001',
  '42501',
  '25006',
]

function decided(probed: PromiseSettledResult<Rows>, rowNeeded: boolean): Omit<Answer, 'role'> {
  if (probed.status === 'fulfilled') {
    if (rowNeeded && probed.value.count === 0) return { outcome: 'unknown', sqlstate: null, message: 'the key has no row there' }
    return { outcome: 'admitted', sqlstate: null, message: 'admitted, then rolled back' }
  }
  const state = sqlstate(probed.reason)
  const message = errorText(probed.reason)
  if (state !== null && REFUSALS.includes(state)) return { outcome: 'refused', sqlstate: state, message }
  return { outcome: passedTheGuard(probed.reason) ? 'admitted' : 'unknown', sqlstate: state, message }
}

// What a server with log_parameter_max_length_on_error adds to every error, outside of any trigger; a trigger's own lines stand before it.
const PARAMETERS_ONLY = /^(?:unnamed portal|portal "[^"\n]*"|extended query) with parameters: [^\n]*$/

/** A constraint of the table itself refused the empty row: those are looked at after the guard. Raised inside a trigger (`where`) they prove nothing. */
function passedTheGuard(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError) || (error.where !== undefined && !PARAMETERS_ONLY.test(error.where))) return false
  return error.code === '23502' || error.code === '23505' || (error.code === '23514' && error.constraint !== undefined)
}

function notDecided(error: unknown): Answer {
  return {
    outcome: 'unknown',
    sqlstate: sqlstate(error),
    message: isHomeregionError(error) ? error.text.fact : errorText(error),
    role: null,
  }
}
