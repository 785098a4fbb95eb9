import type { ServiceStatement } from '../adapters/postgres/service-pool.ts'
import type { IdempotencyContract } from '../domain/config.ts'
import type { Json } from '../domain/evidence.ts'
import { quoted, quotedTable } from './sql-names.ts'

export type IdempotencyTable = IdempotencyContract & {
  /** jsonb column with the answer that the first request got. */
  readonly response: string
}

export type IdempotencyRecord = { readonly key: string; readonly id: string; readonly response: Json }

export function findRecord(table: IdempotencyTable, key: string, id: string): ServiceStatement {
  return {
    name: 'homeregion-idempotency-find',
    sql: `select ${quoted(table.response)} as response from ${quotedTable(table)} where ${quoted(table.key)} = $1 and ${quoted(table.id)} = $2`,
    parameters: [key, id],
  }
}

/** Fails with a unique violation when another request with the same id was faster: the transaction, and so its write, is undone. */
export function insertRecord(table: IdempotencyTable, record: IdempotencyRecord): ServiceStatement {
  return {
    name: 'homeregion-idempotency-insert',
    sql: `insert into ${quotedTable(table)} (${recordColumns(table)}) values ($1, $2, $3)`,
    parameters: [record.key, record.id, JSON.stringify(record.response)],
  }
}

/** Carried records; those that are here already stay as they are. */
export function carryRecords(table: IdempotencyTable, records: readonly IdempotencyRecord[]): ServiceStatement {
  const rows = records.map((_, i) => `($${i * 3 + 1}, $${i * 3 + 2}, $${i * 3 + 3})`)
  return {
    sql: `insert into ${quotedTable(table)} (${recordColumns(table)}) values ${rows.join(', ')} on conflict do nothing`,
    parameters: records.flatMap(r => [r.key, r.id, JSON.stringify(r.response)]),
  }
}

function recordColumns(table: IdempotencyTable): string {
  return [table.key, table.id, table.response].map(quoted).join(', ')
}
