import { createHash } from 'node:crypto'
import type { Config } from '../../../domain/config.ts'
import { isJsonObject, type Json } from '../../../domain/evidence.ts'
import type { ReconcileFinding } from '../../../domain/failover.ts'
import type { LostKey } from '../../../domain/recovery.ts'
import type { Row } from '../../postgres/connection.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { identifier, relation } from '../quoting.ts'
import { exactJson } from './exact-json.ts'
import { rowsOf } from './session.ts'
import { keyIn, type Shape } from './table-shape.ts'

/** An event of the ended epoch that the home has not applied. */
export type LostEvent = {
  readonly id: string
  readonly key: string
  readonly aggregateId: string
  readonly version: number
  /** Its payload as text, to see which idempotency record it carries. */
  readonly payload: string
  readonly finding: ReconcileFinding
}

/** What one look at the outbox of the source and the inbox of the home showed. */
export type EventLook = {
  readonly lost: readonly LostEvent[]
  /** Ids of all events of the ended epochs that the source's outbox still has. */
  readonly atSource: ReadonlySet<string>
}

/** Written by the product itself, not by the service: no write is lost with them. */
const OWN_EVENTS = `('homeregion.barrier', 'homeregion.heartbeat')`
/** Ids asked for in one statement. */
const CHUNK = 5_000

export const KEYS_AND_EPOCHS = (shape: Pick<Shape, 'key' | 'keyType'>, alias: string) =>
  `unnest($1::text[], $2::bigint[]) as k(key, epoch) join ${alias} on t.${shape.key} = k.key::${shape.keyType}`

export function bound(keys: readonly LostKey[]): readonly [readonly string[], readonly number[]] {
  return [keys.map(k => k.key), keys.map(k => k.epoch)]
}

export async function lookAtEvents(
  config: Config,
  outbox: Shape,
  keys: readonly LostKey[],
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<EventLook> {
  const c = config.outbox.columns
  const ids = (
    await rowsOf(
      source,
      `select t.${identifier(c.eventId)}::text as id from ${KEYS_AND_EPOCHS(outbox, `${outbox.sql} t`)}
where t.${identifier(c.ownerEpoch)} = k.epoch and t.${identifier(c.eventType)}::text not in ${OWN_EVENTS}`,
      bound(keys),
    )
  ).map(row => String(row.id))
  const lost: LostEvent[] = []
  for (let from = 0; from < ids.length; from += CHUNK) {
    const missing = await notApplied(config, home, ids.slice(from, from + CHUNK))
    if (missing.length === 0) continue
    const rows = await rowsOf(
      source,
      `select t.${identifier(c.eventId)}::text as event_id, t.${outbox.key}::text as key, t.${identifier(c.aggregateType)}::text as aggregate_type,
  t.${identifier(c.aggregateId)}::text as aggregate_id, t.${identifier(c.aggregateVersion)}::bigint as aggregate_version,
  t.${identifier(c.eventType)}::text as event_type, t.${identifier(c.ownerEpoch)}::bigint as owner_epoch, t.${identifier(c.occurredAt)}::text as occurred_at,
  ${c.payload === null ? 'null' : `to_json(t.${identifier(c.payload)})::text`} as payload,
  ${c.publishedAt === null ? 'null' : `(t.${identifier(c.publishedAt)} is not null)`} as published
from ${outbox.sql} t where ${keyIn(outbox, '$2')} and t.${identifier(c.eventId)}::text = any ($1::text[])`,
      [missing, keys.map(k => k.key)],
    )
    lost.push(...rows.map(row => lostEvent(row, 'event', {})))
  }
  return { lost, atSource: new Set(ids) }
}

/** Of these events those that had no effect in a region: not in its inbox, or there only because they are in quarantine. */
export async function notApplied({ inbox }: Config, region: ServiceTransaction, ids: readonly string[]): Promise<readonly string[]> {
  const id = identifier(inbox.columns.eventId)
  const rows = await rowsOf(
    region,
    `with known as materialized (
  select i.${id}::text as id from ${relation(inbox)} i where i.${id} = any ($1::text[]::${await typeOf(region, relation(inbox), inbox.columns.eventId)}[])
)
select x.id from unnest($1::text[]) as x(id) left join known h on h.id = x.id
where h.id is null or exists (select from homeregion.quarantine q where q.event_id = x.id)`,
    [ids],
  )
  return rows.map(row => String(row.id))
}

export async function typeOf(tx: ServiceTransaction, table: string, column: string): Promise<string> {
  const rows = await rowsOf(
    tx,
    'select format_type(a.atttypid, a.atttypmod) as type from pg_attribute a where a.attrelid = $1::regclass and a.attname = $2',
    [table, column],
  )
  return typeof rows[0]?.type === 'string' ? rows[0].type : 'text'
}

/** Late events that reached the home: kept there with their payload, and undecided. Some are of rows that the source has lost itself. */
export async function quarantinedEvents(keys: readonly LostKey[], source: string, home: ServiceTransaction): Promise<readonly LostEvent[]> {
  const rows = await rowsOf(
    home,
    `select q.event_id, q.key, q.aggregate_type, coalesce(q.aggregate_id, '') as aggregate_id, coalesce(q.aggregate_version, 0) as aggregate_version,
  q.event_type, q.owner_epoch, q.occurred_at::text as occurred_at, q.payload::text as payload, true as published
from unnest($1::text[], $2::bigint[]) as k(key, epoch) join homeregion.quarantine q on q.key = k.key::text collate "C" and q.owner_epoch = k.epoch
where (q.source_region is null or q.source_region = $3) and q.event_type is distinct from 'homeregion.barrier'`,
    [...bound(keys), source],
  )
  return rows.map(row => lostEvent(row, 'event', { quarantined: true }))
}

/** The same event, told as one whose row the source has lost. */
export function asPhantom(event: LostEvent): LostEvent {
  const { content } = event.finding
  const more = isJsonObject(content) ? content : {}
  return { ...event, finding: { ...event.finding, kind: 'phantom', content: { ...more, rowLost: true } } }
}

function lostEvent(row: Row, kind: 'event' | 'phantom', more: Readonly<Record<string, Json>>): LostEvent {
  const text = (value: unknown) => (typeof value === 'string' ? value : '')
  const id = text(row.event_id)
  const [aggregateId, version, payload] = [text(row.aggregate_id), Number(row.aggregate_version), text(row.payload)]
  const content: Json = {
    ...{ eventId: id, eventType: text(row.event_type), aggregateType: text(row.aggregate_type), aggregateId, aggregateVersion: version },
    ...{ ownerEpoch: Number(row.owner_epoch), occurredAt: text(row.occurred_at), published: row.published === true },
    payload: exactJson(payload === '' ? null : payload),
    ...more,
  }
  const subject = `${text(row.aggregate_type)} ${aggregateId}, version ${version} (${text(row.event_type)})`
  const key = text(row.key)
  return { id, key, aggregateId, version, payload, finding: { id: eventItemId(id), key, kind, subject, content } }
}

/** As it stands where it can be typed, else a hash. */
export function eventItemId(eventId: string): string {
  return /^[0-9A-Za-z-]{1,64}$/.test(eventId) ? `event-${eventId}` : itemId('event', [eventId])
}

export function itemId(kind: string, parts: readonly string[]): string {
  return `${kind}-${createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 24)}`
}
