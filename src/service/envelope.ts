import { isJsonObject, type Json } from '../domain/evidence.ts'

/** Written through the outbox by a fence; an inbox records its id like that of any event it does not understand. */
export const BARRIER_EVENT_TYPE = 'homeregion.barrier'

/** The envelope of one event, as it stands in the outbox, in Kafka's headers and before the inbox. */
export type Envelope = {
  readonly eventId: string
  /** The ownership key. */
  readonly key: string
  readonly aggregateType: string
  readonly aggregateId: string
  readonly eventType: string
  readonly sourceRegion: string
  readonly homeRegion: string
  readonly ownerEpoch: number
  readonly aggregateVersion: number
  /** ISO 8601, by the source database's clock. */
  readonly occurredAt: string
}

/** The answer a caller got, carried with the event so that a retry in another region gets the same one. */
export type CarriedAnswer = { readonly id: string; readonly response: Json }

export type ServiceEvent = Envelope & {
  /** Null where the event has none, as a barrier. */
  readonly data: Json
  readonly answer: CarriedAnswer | null
  /** The message as it came, for keeping it when it may not be applied: reading JSON and writing it again would change its numbers. */
  readonly raw: { readonly headers: Readonly<Record<string, string>>; readonly value: string }
}

const HEADERS = {
  eventId: 'event_id',
  key: 'key',
  aggregateType: 'aggregate_type',
  aggregateId: 'aggregate_id',
  eventType: 'event_type',
  sourceRegion: 'source_region',
  homeRegion: 'home_region',
  ownerEpoch: 'owner_epoch',
  aggregateVersion: 'aggregate_version',
  occurredAt: 'occurred_at',
} as const satisfies Record<keyof Envelope, string>

/** What the outbox's payload column holds: the business data, with the answer beside it. */
export function payloadOf(data: Json, answer: CarriedAnswer | null): Json {
  return { data, idempotency: answer === null ? null : { id: answer.id, response: answer.response } }
}

export function headersOf(envelope: Envelope): Record<string, string> {
  return Object.fromEntries(Object.entries(HEADERS).map(([field, name]) => [name, String(envelope[field as keyof Envelope])]))
}

/** The event of one Kafka message, or null when it carries no envelope (foreign to this service). */
export function eventOf(headers: Readonly<Record<string, string>>, value: string): ServiceEvent | null {
  const read = (field: keyof Envelope): string | null => headers[HEADERS[field]] ?? null
  const eventId = read('eventId')
  const key = read('key')
  const eventType = read('eventType')
  if (eventId === null || key === null || eventType === null) return null
  const payload = parsed(value)
  return {
    eventId,
    key,
    eventType,
    aggregateType: read('aggregateType') ?? '',
    aggregateId: read('aggregateId') ?? '',
    sourceRegion: read('sourceRegion') ?? '',
    homeRegion: read('homeRegion') ?? '',
    ownerEpoch: wholeNumber(read('ownerEpoch')),
    aggregateVersion: wholeNumber(read('aggregateVersion')),
    occurredAt: read('occurredAt') ?? '',
    data: payload['data'] ?? null,
    answer: answerOf(payload['idempotency'] ?? null),
    raw: { headers, value },
  }
}

/** 0 for what is none: older than every epoch and version, so that such an event is never taken for a current one. */
function wholeNumber(text: string | null): number {
  const number = Number(text ?? 0)
  return Number.isSafeInteger(number) ? number : 0
}

function parsed(value: string): { readonly [name: string]: Json } {
  try {
    const json = JSON.parse(value === '' ? 'null' : value) as Json
    return isJsonObject(json) ? json : {}
  } catch {
    // Not ours to understand: the event is recorded by its envelope alone.
    return {}
  }
}

function answerOf(json: Json): CarriedAnswer | null {
  if (!isJsonObject(json)) return null
  const id = json['id']
  return typeof id === 'string' ? { id, response: json['response'] ?? null } : null
}
