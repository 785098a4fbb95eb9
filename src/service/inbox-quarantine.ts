import type { ServiceStatement } from '../adapters/postgres/service-pool.ts'
import type { ServiceEvent } from './envelope.ts'

/** What became of an event that looked late. `apply`: ownership changed meanwhile, and it is to be applied after all. */
export type LateOutcome = 'quarantined' | 'duplicate' | 'apply'

/** Thrown inside the transaction that would have applied them, so that it is undone. */
export class LateEvents extends Error {
  /** Places of the late events in what was to be applied. */
  readonly places: ReadonlySet<number>

  constructor(places: ReadonlySet<number>) {
    super(`${places.size} events are of an epoch that is over`)
    this.name = 'LateEvents'
    this.places = places
  }
}

/** Takes the keys' shared locks, so that the answer holds until the transaction ends. */
export function findLate(events: readonly ServiceEvent[]): ServiceStatement {
  return {
    name: 'homeregion-inbox-late',
    sql: 'select place from homeregion.late_events($1::text[], $2::bigint[]) as place',
    parameters: [events.map(e => e.key), events.map(e => e.ownerEpoch)],
  }
}

export function quarantineEvent(event: ServiceEvent): ServiceStatement {
  return {
    name: 'homeregion-inbox-quarantine',
    sql: 'select homeregion.quarantine_event($1::jsonb, $2::text) as outcome',
    parameters: [JSON.stringify(envelopeOf(event)), payloadOf(event)],
  }
}

/** The headers as they came, whatever else stands there. A header cannot hold U+0000 in PostgreSQL. */
function envelopeOf(event: ServiceEvent): Record<string, string> {
  const headers = { ...event.raw.headers, event_id: event.eventId, key: event.key, owner_epoch: String(event.ownerEpoch) }
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [clean(name), clean(value)]))
}

function clean(text: string): string {
  return text.replaceAll('\u0000', '\ufffd')
}

/** Text, so that PostgreSQL reads the JSON and not JavaScript. U+0000 itself no text can hold, and no JSON. */
function payloadOf(event: ServiceEvent): string | null {
  const { value } = event.raw
  if (value === '') return null
  return value.includes('\u0000') ? JSON.stringify({ 'homeregion.base64': Buffer.from(value).toString('base64') }) : value
}
