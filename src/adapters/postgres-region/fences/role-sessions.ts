import { setTimeout as wait } from 'node:timers/promises'
import type { Connection, Row } from '../../postgres/connection.ts'
import { sqlstate } from '../boundary-error.ts'

/** A session of a role, in whatever database. */
export type RoleSession = { readonly pid: number; readonly role: string; readonly text: string }

/**
 * A session that is still logging in and has no name yet: it holds a transaction and stands in no list. It may have passed the question
 * whether its role may log in, and then sleep for as long as its client wants.
 */
export type StartingSession = { readonly pid: number; readonly transaction: string }

export type SessionLook = { readonly sessions: readonly RoleSession[]; readonly starting: readonly StartingSession[] }

export type Quiet = {
  /** True: nobody was left on two looks in a row. */
  readonly quiet: boolean
  readonly ended: number
  /** Nameless sessions that were ended. */
  readonly startingEnded: number
  readonly left: SessionLook
}

export type Prepared = { readonly gid: string; readonly role: string; readonly database: string; readonly ageMs: number }

const LOOK_EVERY_MS = 20
/** A login takes a few milliseconds. Whoever needs longer is ended, so that a login of another role is not hit on its way. */
const STARTING_GRACE_MS = 250

// One statement: a session that gets its name between two would stand in neither list. Two looks in a row see what moved during one.
const LOOK = `select s.pid, s.usename::text as role, s.datname::text as database, s.application_name as application, s.state, null as transaction
from pg_catalog.pg_stat_activity s where s.usename = any ($1::name[]) and s.pid <> pg_backend_pid()
union all
select l.pid, null, null, null, null, l.virtualxid from pg_catalog.pg_locks l
where l.locktype = 'virtualxid' and l.pid <> pg_backend_pid()
  and not exists (select from pg_catalog.pg_stat_activity s where s.pid = l.pid and (s.usename is not null or s.backend_type <> 'client backend'))`

export async function lookAtSessions(connection: Connection, roles: readonly string[]): Promise<SessionLook> {
  const { rows } = await connection.query('read', LOOK, [roles])
  return {
    sessions: rows.filter(r => r.transaction === null).map(session),
    starting: rows.filter(r => r.transaction !== null).map(r => ({ pid: Number(r.pid), transaction: String(r.transaction) })),
  }
}

/**
 * Ends every session of the roles, after it was committed that they may not log in. Of the nameless ones only those of the first look matter:
 * whoever begins to log in later is asked later, and refused.
 */
export async function endSessions(connection: Connection, roles: readonly string[], withinMs: number): Promise<Quiet> {
  const ended = new Set<number>()
  const startingEnded = new Set<number>()
  const harmless = new Set<string>()
  const quiet = await untilQuiet(connection, roles, withinMs, async (look, sinceMs) => {
    if (look.sessions.length > 0) {
      await connection.query(
        'write',
        'select pg_terminate_backend(s.pid) from pg_catalog.pg_stat_activity s where s.usename = any ($1::name[]) and s.pid <> pg_backend_pid()',
        [roles],
      )
      for (const { pid } of look.sessions) ended.add(pid)
    }
    if (sinceMs < STARTING_GRACE_MS) return harmless
    for (const starting of look.starting) {
      if (await terminate(connection, starting.pid)) startingEnded.add(starting.pid)
      else harmless.add(starting.transaction)
    }
    return harmless
  })
  return { ...quiet, ended: ended.size, startingEnded: startingEnded.size }
}

/** Only looks. */
export async function watchSessions(connection: Connection, roles: readonly string[], withinMs: number): Promise<Quiet> {
  const none: ReadonlySet<string> = new Set()
  return { ...(await untilQuiet(connection, roles, withinMs, async () => none)), ended: 0, startingEnded: 0 }
}

type Step = (look: SessionLook, sinceMs: number) => Promise<ReadonlySet<string>>

async function untilQuiet(
  connection: Connection,
  roles: readonly string[],
  withinMs: number,
  step: Step,
): Promise<{ quiet: boolean; left: SessionLook }> {
  const began = performance.now()
  let first: readonly StartingSession[] | null = null
  let ignored: ReadonlySet<string> = new Set()
  for (let empty = 0; ; ) {
    const look = await lookAtSessions(connection, roles)
    first ??= look.starting
    const known = first.map(s => s.transaction)
    const starting = look.starting.filter(s => known.includes(s.transaction) && !ignored.has(s.transaction))
    const left = { sessions: look.sessions, starting }
    empty = left.sessions.length + starting.length === 0 ? empty + 1 : 0
    if (empty === 2) return { quiet: true, left }
    const sinceMs = performance.now() - began
    if (sinceMs > withinMs) return { quiet: false, left }
    ignored = await step(left, sinceMs)
    await wait(LOOK_EVERY_MS)
  }
}

/**
 * False: the server does not let an ordinary login end it, because it is nobody yet (its password is still asked for, and after that it will
 * be refused) or a superuser's.
 */
async function terminate(connection: Connection, pid: number): Promise<boolean> {
  try {
    await connection.query('write', 'select pg_terminate_backend($1)', [pid])
    return true
  } catch (error) {
    if (sqlstate(error) === '42501') return false
    throw error
  }
}

/** Transactions the roles have prepared: they commit without anybody logging in. */
export async function preparedBy(connection: Connection, roles: readonly string[]): Promise<readonly Prepared[]> {
  const { rows } = await connection.query(
    'read',
    `select gid, owner::text as role, database::text, (extract(epoch from clock_timestamp() - prepared) * 1000)::int8 as age_ms
     from pg_catalog.pg_prepared_xacts where owner = any ($1::name[]) order by prepared`,
    [roles],
  )
  return rows.map(r => ({ gid: String(r.gid), role: String(r.role), database: String(r.database), ageMs: Number(r.age_ms) }))
}

function session(row: Row): RoleSession {
  const [role, database, application, state] = [row.role, row.database, row.application, row.state].map(v =>
    typeof v === 'string' ? v : '',
  )
  return {
    pid: Number(row.pid),
    role: role ?? '',
    text: `pid ${Number(row.pid)}${application === '' ? '' : ` ${application}`} in ${database}${state === '' ? '' : `, ${state}`}`,
  }
}
