import type { Config, DatabaseLogin, RegionConfig } from '../../../domain/config.ts'
import type { Row, Secrets } from '../../postgres/connection.ts'
import { createServicePool, type ServicePool, type ServiceTransaction } from '../../postgres/service-pool.ts'

/** Whole keys are read, sorted and hashed in one statement: more than any other call does, and nobody's writes wait for it. */
const SLOWER = 24

export function openPool(region: RegionConfig, login: DatabaseLogin, config: Config, secrets: Secrets): ServicePool {
  return createServicePool({
    ...{ login, secrets, name: `${region.name} database`, applicationName: 'homeregion recovery' },
    ...{ size: 1, callTimeoutMs: config.policy.callTimeoutMs * SLOWER },
  })
}

/** Makes rows of two servers the same text when they are the same rows. For the transaction only. */
const SAME_TEXT = `select set_config('TimeZone', 'UTC', true), set_config('IntervalStyle', 'postgres', true), set_config('extra_float_digits', '1', true),
 set_config('bytea_output', 'hex', true)`

/** One snapshot for all that is read in it. */
export async function inSnapshot<T>(pool: ServicePool, work: (tx: ServiceTransaction) => Promise<T>): Promise<T> {
  return await pool.transaction(async tx => {
    tx.send({ sql: 'set transaction isolation level repeatable read, read only' })
    tx.send({ sql: SAME_TEXT })
    return await work(tx)
  })
}

/** A change at the region that is brought level: as a copy of foreign keys, which the guard admits for those alone. */
export async function asCopy<T>(pool: ServicePool, lockTimeoutMs: number, work: (tx: ServiceTransaction) => Promise<T>): Promise<T> {
  return await pool.transaction(async tx => {
    tx.send({ sql: SAME_TEXT })
    tx.send({
      sql: `select set_config('lock_timeout', $1, true), set_config('synchronous_commit', 'on', true)`,
      parameters: [String(lockTimeoutMs)],
    })
    // Awaited: without it the guard would take what follows for the service's own writes.
    await tx.query({ sql: `set local session_replication_role = 'replica'` })
    return await work(tx)
  })
}

export async function rowsOf(tx: ServiceTransaction, sql: string, parameters: readonly unknown[]): Promise<readonly Row[]> {
  return (await tx.query({ sql, parameters })).rows
}
