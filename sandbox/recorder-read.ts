import type pg from 'pg'
import { nameOf, type RecordedEvent, type RegionHistory } from './recorder.ts'

/** Reads what one region holds; `client` needs SELECT on the service's tables. Read it when the load has stopped and the inboxes have caught up. */
export async function readHistory(region: string, client: pg.Client): Promise<RegionHistory> {
  const outbox = await client.query<RecordedEvent>(`select event_id::text as "eventId", tenant_id as "key", aggregate_id as "aggregateId",
aggregate_version::int as "version", owner_epoch::int as "epoch",
case when event_type = 'homeregion.barrier' then null else payload -> 'idempotency' ->> 'id' end as "idempotencyKey" from public.outbox`)
  // The ids of late events stand in the inbox too, so that they are not read twice; they were not applied.
  const inbox = await client.query<{ id: string }>(`select event_id::text as id from public.inbox i
where not exists (select from homeregion.quarantine q where q.event_id = i.event_id::text)`)
  const versions = await client.query<{ key: string; id: string; version: number }>(
    'select tenant_id as key, account_id as id, version::int as version from public.account',
  )
  const idempotency = await client.query<{ key: string; id: string }>(
    'select tenant_id as key, idempotency_key as id from public.idempotency',
  )
  return {
    region,
    outbox: outbox.rows,
    inbox: new Set(inbox.rows.map(r => r.id)),
    versions: new Map(versions.rows.map(r => [nameOf(r.key, r.id), r.version])),
    idempotency: new Set(idempotency.rows.map(r => nameOf(r.key, r.id))),
  }
}
