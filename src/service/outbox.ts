import type { ServiceStatement } from '../adapters/postgres/service-pool.ts'
import type { OutboxContract } from '../domain/config.ts'
import type { Json } from '../domain/evidence.ts'
import type { Envelope } from './envelope.ts'
import { quoted, quotedTable } from './sql-names.ts'

/** The event's row; `occurred_at` is the database's clock, so that ages within a region come from one clock. */
export function insertEvent(table: OutboxContract, event: Omit<Envelope, 'occurredAt'>, payload: Json): ServiceStatement {
  const c = table.columns
  const values: readonly (readonly [string, unknown])[] = [
    [c.key, event.key],
    [c.eventId, event.eventId],
    [c.aggregateType, event.aggregateType],
    [c.aggregateId, event.aggregateId],
    [c.eventType, event.eventType],
    [c.sourceRegion, event.sourceRegion],
    [c.homeRegion, event.homeRegion],
    [c.ownerEpoch, event.ownerEpoch],
    [c.aggregateVersion, event.aggregateVersion],
    ...(c.payload === null ? [] : [[c.payload, JSON.stringify(payload)] as const]),
  ]
  const columns = [...values.map(([name]) => name), c.occurredAt].map(quoted).join(', ')
  const places = values.map((_, i) => `$${i + 1}`).join(', ')
  return {
    name: 'homeregion-outbox-insert',
    sql: `insert into ${quotedTable(table)} (${columns}) values (${places}, pg_catalog.clock_timestamp())`,
    parameters: values.map(([, value]) => value),
  }
}
