import type { Connection } from '../../postgres/connection.ts'
import { identifier } from '../quoting.ts'
import type { PrivilegeStatement } from './privileges.ts'

/**
 * A transaction whose next statement depends on what the last one answered. The commit alone can leave its outcome unknown: whatever is lost before
 * it changed nothing.
 */
export async function inTransaction<T>(connection: Connection, work: () => Promise<T>): Promise<T> {
  await connection.query('read', 'begin')
  try {
    await connection.query(
      'read',
      // Durable when it is told, whatever the server's default; and never long in somebody else's way.
      `select set_config('lock_timeout', '2s', true),
              case when current_setting('synchronous_commit') in ('off', 'local') then set_config('synchronous_commit', 'on', true) end`,
    )
    const result = await work()
    await connection.query('write', 'commit')
    return result
  } catch (error) {
    await connection.query('read', 'rollback').catch(() => undefined)
    throw error
  }
}

/** Sent at once, answered in order: one round trip for all. */
export async function runPrivileges(connection: Connection, statements: readonly PrivilegeStatement[]): Promise<void> {
  const sent = statements.flatMap(s => lines(s)).map(async sql => await connection.query('read', sql))
  const failed = (await Promise.allSettled(sent)).find(r => r.status === 'rejected')
  if (failed !== undefined) throw failed.reason
}

export function statementText(s: PrivilegeStatement): string {
  return lines(s).join('; ')
}

function lines(s: PrivilegeStatement): readonly string[] {
  return s.as === null ? [s.sql] : [`set local role ${identifier(s.as)}`, s.sql, 'reset role']
}
