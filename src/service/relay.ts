import type { EventPublisher, OutboundEvent } from '../adapters/kafka-region/event-publisher.ts'
import type { ServicePool, ServiceStatement } from '../adapters/postgres/service-pool.ts'
import type { OutboxContract } from '../domain/config.ts'
import { BARRIER_EVENT_TYPE, type Envelope, headersOf } from './envelope.ts'
import { quoted, quotedTable } from './sql-names.ts'

export interface Relay {
  /** There may be something to publish: after a commit in this process, or a notification. */
  wake(): void
  stats(): RelayStats
  close(): Promise<void>
}

export type RelayStats = {
  readonly published: number
  readonly failures: number
  readonly lastError: string | null
}

export type RelayOptions = {
  readonly pool: ServicePool
  readonly publisher: EventPublisher
  readonly outbox: OutboxContract & { readonly columns: { readonly publishedAt: string } }
}

const BATCH = 500
// Only a net below NOTIFY, for rows whose writer raised none; the index of unpublished rows makes an empty look cost some 0.1 ms.
const IDLE_MS = 25
const RETRY_MS = 100

/**
 * Publishes the outbox until it is closed. One relay runs per region: two would publish events twice, which an inbox recognises.
 * If the process dies after the broker's acknowledgement and before the mark, the event is published again; never lost.
 */
export function startRelay(options: RelayOptions): Relay {
  const closing = new AbortController()
  const stats = { published: 0, failures: 0, lastError: null as string | null }
  let wake: () => void = () => undefined
  let woken = false
  // Acknowledged by the broker, not yet marked: marked together with the next look.
  let acknowledged: readonly string[] = []

  const idle = async (ms: number): Promise<void> => {
    if (woken || closing.signal.aborted) return
    await new Promise<void>(resolve => {
      const timer = setTimeout(resolve, ms)
      wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  const round = async (): Promise<number> => {
    woken = false
    const { rows } = await options.pool.query(markAndRead(options.outbox, acknowledged))
    acknowledged = []
    const events = rows.map(row => row as OutboxRow)
    await options.publisher.publish(events.map(outbound))
    acknowledged = events.map(e => e.eventId)
    stats.published += events.length
    return events.length
  }

  const loop = async (): Promise<void> => {
    while (!closing.signal.aborted || acknowledged.length > 0) {
      try {
        if ((await round()) === 0) await idle(IDLE_MS)
      } catch (error) {
        stats.failures += 1
        stats.lastError = error instanceof Error ? error.message : String(error)
        // On the way out a mark that fails is left: those events are published again by the next relay.
        if (closing.signal.aborted) return
        woken = false
        await idle(RETRY_MS)
      }
    }
  }

  const running = loop()
  return {
    wake: () => {
      woken = true
      wake()
    },
    stats: () => ({ ...stats }),
    close: async () => {
      closing.abort()
      wake()
      await running
    },
  }
}

type OutboxRow = Envelope & { readonly payload: string }

function outbound(row: OutboxRow): OutboundEvent {
  return { key: row.key, headers: headersOf(row), value: row.payload }
}

/**
 * Unpublished rows, found by the absence of their mark and never by a cursor: a row with a lower id may be committed later.
 * The order needs no clock: within a key epochs rise, a fence's barrier comes after everything of its epoch, and versions rise.
 */
function markAndRead(outbox: RelayOptions['outbox'], acknowledged: readonly string[]): ServiceStatement {
  const c = outbox.columns
  const table = quotedTable(outbox)
  const [id, published, type] = [quoted(c.eventId), quoted(c.publishedAt), quoted(c.eventType)]
  const column = (name: string, as: keyof Envelope) => `${quoted(name)} as ${quoted(as)}`
  return {
    name: 'homeregion-relay-round',
    sql: `with marked as (update ${table} set ${published} = pg_catalog.clock_timestamp() where ${id} = any($1) and ${published} is null)
select ${id}::text as "eventId", ${quoted(c.key)}::text as "key", ${column(c.aggregateType, 'aggregateType')}, ${quoted(c.aggregateId)}::text as "aggregateId",
  ${column(c.eventType, 'eventType')}, ${column(c.sourceRegion, 'sourceRegion')}, ${column(c.homeRegion, 'homeRegion')},
  ${column(c.ownerEpoch, 'ownerEpoch')}, ${column(c.aggregateVersion, 'aggregateVersion')},
  pg_catalog.to_char(${quoted(c.occurredAt)} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "occurredAt",
  ${c.payload === null ? `''` : `coalesce(${quoted(c.payload)}::text, 'null')`} as payload
from ${table} where ${published} is null and ${id} <> all($1)
order by ${quoted(c.ownerEpoch)}, ${type} = $2, ${quoted(c.aggregateVersion)}, ${quoted(c.occurredAt)}
limit ${BATCH}`,
    parameters: [acknowledged, BARRIER_EVENT_TYPE],
  }
}
