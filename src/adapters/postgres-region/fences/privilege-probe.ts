import pg from 'pg'
import type { Config, RegionConfig } from '../../../domain/config.ts'
import { isHomeregionError } from '../../../domain/errors.ts'
import { fail, type Observation, pass, unknown } from '../../../domain/evidence.ts'
import { type Connection, createConnection, errorText, type Secrets } from '../../postgres/connection.ts'
import { sqlstate } from '../boundary-error.ts'
import { loginAt } from '../endpoint-probe.ts'
import { identifier } from '../quoting.ts'

export type ProbedTable = {
  /** Quoted. */
  readonly name: string
  readonly plain: string
  readonly insertColumns: readonly string[]
  readonly updateColumns: readonly string[]
}

export type PrivilegeProbes = { observe(tables: readonly ProbedTable[]): Promise<readonly Observation[]>; close(): Promise<void> }

const REFUSED = '42501'

type Door = { readonly writer: string; readonly way: string; readonly connection: Connection }

/** Writes as each declared writer, by its real login, at the primary and through each pooler; always rolled back. One observation for each door. */
export function createPrivilegeProbes(region: RegionConfig, config: Config, secrets: Secrets, fencer: Connection): PrivilegeProbes {
  const poolers = region.database.endpoints.filter(e => e.kind === 'pooler')
  const doors = region.database.writers.flatMap((writer): readonly Door[] => [
    door(writer.role, `${region.name} database as ${writer.role}`, writer, false),
    ...poolers.map(e => door(writer.role, `${region.name} endpoint ${e.name} as ${writer.role}`, loginAt(writer, e), true)),
  ])
  function door(writer: string, way: string, login: Parameters<typeof loginAt>[0], bare: boolean): Door {
    const connection = createConnection({
      login,
      secrets,
      name: way,
      applicationName: 'homeregion probe',
      callTimeoutMs: config.policy.callTimeoutMs,
      unreachable: 'region-unreachable',
      bare,
    })
    return { writer, way, connection }
  }
  return {
    observe: async tables => await Promise.all(doors.map(async d => await atDoor(d, tables, fencer))),
    close: async () => void (await Promise.all(doors.map(async d => await d.connection.close()))),
  }
}

async function atDoor(d: Door, tables: readonly ProbedTable[], fencer: Connection): Promise<Observation> {
  const required = `every INSERT, UPDATE and DELETE refused with ${REFUSED}`
  try {
    await d.connection.warm()
  } catch (error) {
    const state = loginState(error)
    // Another fence holds its login back. What it could do inside is asked all the same: as that role, which the fencer can become.
    if (state === '28000' || state === '28P01')
      return observed(
        d,
        required,
        await probed(fencer, tables, d.writer),
        ` as ${d.writer} by the fencer's session; its own login is refused with ${state}`,
      )
    return unknown(d.way, required, isHomeregionError(error) ? error.text.fact : errorText(error))
  }
  return observed(d, required, await probed(d.connection, tables, null), '')
}

type Answer = { readonly what: string; readonly refused: boolean; readonly decided: boolean; readonly said: string }

function observed(d: Door, required: string, answers: readonly Answer[], how: string): Observation {
  const open = answers.filter(a => !a.refused)
  const facts = { refused: answers.length - open.length, open: open.map(a => `${a.what}: ${a.said}`) }
  if (open.length === 0) return pass(d.way, required, `${answers.length} of ${answers.length} refused${how}`, facts)
  const verdict = open.some(a => a.decided) ? fail : unknown
  return verdict(d.way, required, `${open.length} of ${answers.length} not refused${how}: ${facts.open.slice(0, 4).join('; ')}`, facts)
}

/** `role`: whom the session becomes for the probe; null: it is the writer's own. */
async function probed(connection: Connection, tables: readonly ProbedTable[], role: string | null): Promise<readonly Answer[]> {
  return await Promise.all(
    tables.flatMap(t =>
      statements(t).map(async ({ what, sql }) => ({ what: `${what} ${t.plain}`, ...(await rolledBack(connection, sql, role)) })),
    ),
  )
}

/**
 * Statements that ask for one privilege each and touch no row: privileges are looked at before rows are. They read nothing, so that a missing SELECT
 * cannot be taken for the refusal.
 */
function statements(t: ProbedTable): readonly { readonly what: string; readonly sql: string }[] {
  return [
    ...t.insertColumns.map(c => ({
      what: `INSERT (${c}) into`,
      sql: `insert into ${t.name} (${identifier(c)}) overriding system value select null where false`,
    })),
    ...t.updateColumns.map(c => ({ what: `UPDATE (${c}) of`, sql: `update ${t.name} set ${identifier(c)} = default where false` })),
    { what: 'DELETE from', sql: `delete from ${t.name} where false` },
  ]
}

async function rolledBack(connection: Connection, sql: string, role: string | null): Promise<Omit<Answer, 'what'>> {
  const query = async (text: string) => await connection.query('read', text)
  const [begun, waits, became, tried, undone] = await Promise.allSettled([
    query('begin'),
    query(`set local lock_timeout = '1s'`),
    query(role === null ? 'select' : `set local role ${identifier(role)}`),
    query(sql),
    query('rollback'),
  ])
  for (const s of [begun, waits, became, undone])
    if (s.status === 'rejected') return { refused: false, decided: false, said: errorText(s.reason) }
  if (tried.status === 'fulfilled') return { refused: false, decided: true, said: 'admitted, then rolled back' }
  const { reason } = tried as { reason: unknown }
  // Raised inside a trigger or function (`where`), it says nothing of the statement's own privileges.
  const refused = reason instanceof pg.DatabaseError && reason.code === REFUSED && reason.where === undefined
  return {
    refused,
    decided: reason instanceof pg.DatabaseError && reason.where !== undefined,
    said: `${sqlstate(reason) ?? 'no answer'} ${errorText(reason)}`,
  }
}

function loginState(error: unknown): string | null {
  return isHomeregionError(error) ? sqlstate(error.cause) : sqlstate(error)
}
