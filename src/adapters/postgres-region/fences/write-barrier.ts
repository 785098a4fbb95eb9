import type { Connection } from '../../postgres/connection.ts'
import { sqlstate } from '../boundary-error.ts'
import { sqlText } from '../sql-file.ts'
import type { WriteScope } from './granted-writes.ts'

/** Whoever holds a lock that a write takes on one of the tables. */
export type TableHolder = {
  /** null: a prepared transaction. */
  readonly pid: number | null
  readonly gid: string | null
  readonly role: string | null
  readonly state: string
  readonly tables: string
  /** It can act as a role whose privileges were revoked. */
  readonly fenced: boolean
  readonly since: string | null
}

/** Grantees of what was revoked; null among them is PUBLIC. */
export type Fenced = readonly (string | null)[]

export async function tableHolders(connection: Connection, scope: WriteScope, fenced: Fenced): Promise<readonly TableHolder[]> {
  const roles = fenced.filter(r => r !== null)
  const parameters = [scope.tables, roles, roles.length < fenced.length, scope.writers, scope.copies]
  const { rows } = await connection.query('read', sqlText('table-holders.sql'), parameters)
  return rows.map(row => ({
    pid: row.pid === null ? null : Number(row.pid),
    gid: typeof row.gid === 'string' ? row.gid : null,
    role: typeof row.role === 'string' ? row.role : null,
    state: String(row.state),
    tables: String(row.tables),
    fenced: row.fenced === true,
    since: typeof row.since === 'string' ? row.since : null,
  }))
}

export function holderText(h: TableHolder): string {
  const role = h.role ?? 'an unknown role'
  if (h.pid === null) return `prepared transaction ${h.gid === null ? '?' : JSON.stringify(h.gid)} of ${role} (${h.tables})`
  return `session ${h.pid} of ${role}, ${h.state} (${h.tables})`
}

export function lockStatement(scope: WriteScope): string {
  return `lock table ${scope.tables.join(', ')} in share mode`
}

/**
 * True when nobody holds a lock that a write takes: whoever wrote before has ended, and whoever writes later meets the privileges of now. New
 * writers queue behind the wait, so it is short and asked again rather than long; nothing is held afterwards.
 */
export async function barrierGranted(connection: Connection, scope: WriteScope): Promise<boolean> {
  try {
    await connection.transaction('read', [
      { sql: `select set_config('lock_timeout', $1, true)`, parameters: [`${LOCK_WAIT_MS}ms`] },
      { sql: lockStatement(scope) },
    ])
    return true
  } catch (error) {
    // Not free in time, or two of us in each other's way: asked again.
    if (['55P03', '40P01', '57014'].includes(sqlstate(error) ?? '')) return false
    throw error
  }
}

// Long enough for an ordinary transaction to end, short enough for those that queue behind.
const LOCK_WAIT_MS = 300

/** Ends those sessions; returns how many of them were ended. A process id is looked up with its start, so that no later session is hit. */
export async function endSessions(connection: Connection, holders: readonly TableHolder[]): Promise<number> {
  let ended = 0
  for (const h of holders) {
    const { rows } = await connection.query(
      'write',
      'select pg_terminate_backend(s.pid, 1000) as ended from pg_stat_activity s where s.pid = $1 and s.backend_start = $2::timestamptz',
      [h.pid, h.since],
    )
    ended += rows.length
  }
  return ended
}
