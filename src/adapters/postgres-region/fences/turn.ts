import { setTimeout as wait } from 'node:timers/promises'
import { HomeregionError } from '../../../domain/errors.ts'
import type { Connection } from '../../postgres/connection.ts'

const LOCK_SPACE = 1_213_354_071
const TRY_EVERY_MS = 50

export type Turn = <T>(work: () => Promise<T>) => Promise<T>

/**
 * One process at a time applies or lifts a fence: two that each deliver a new secret would leave the sink with one and the server with the
 * other. The lock belongs to the session that makes the changes, so it goes with a process that dies.
 * @throws `run-leased` (retriable) when another process has it for longer than `withinMs`
 */
export function createTurn(connection: Connection, name: string, withinMs: number): Turn {
  // The server would give one session its own lock twice.
  let last: Promise<unknown> = Promise.resolve()
  return async work => {
    const before = last
    const mine = (async () => {
      await before
      await take(connection, name, withinMs)
      try {
        return await work()
      } finally {
        // A session that was lost has no lock any more.
        await connection.query('read', 'select pg_advisory_unlock($1, hashtext($2))', [LOCK_SPACE, name]).catch(() => undefined)
      }
    })()
    last = mine.catch(() => undefined)
    return await mine
  }
}

async function take(connection: Connection, name: string, withinMs: number): Promise<void> {
  const end = performance.now() + withinMs
  for (;;) {
    const { rows } = await connection.query('read', 'select pg_try_advisory_lock($1, hashtext($2)) as taken', [LOCK_SPACE, name])
    if (rows[0]?.taken === true) return
    if (performance.now() > end) throw await taken(connection, name)
    await wait(TRY_EVERY_MS)
  }
}

async function taken(connection: Connection, name: string): Promise<HomeregionError> {
  const { rows } = await connection.query(
    'read',
    `select l.pid, s.backend_start from pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity s on s.pid = l.pid
     where l.locktype = 'advisory' and l.granted and l.classid = $1::int8::oid and l.objid::int8 = (hashtext($2)::int8 & 4294967295) and l.objsubid = 2`,
    [LOCK_SPACE, name],
  )
  const since = rows[0]?.backend_start
  return new HomeregionError(
    'run-leased',
    {
      fact: `${name} is being applied or lifted by another homeregion process (database session ${Number(rows[0]?.pid)}${since instanceof Date ? `, since ${since.toISOString()}` : ''})`,
      state: 'Nothing was changed.',
    },
    { retriable: true },
  )
}
