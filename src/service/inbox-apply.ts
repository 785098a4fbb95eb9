import type { ServicePool, ServiceStatement, ServiceTransaction } from '../adapters/postgres/service-pool.ts'
import type { InboxContract } from '../domain/config.ts'
import type { ServiceEvent } from './envelope.ts'
import { carryRecords, type IdempotencyTable } from './idempotency.ts'
import type { HoldReason } from './inbox-held.ts'
import { findLate, LateEvents, type LateOutcome, quarantineEvent } from './inbox-quarantine.ts'
import { quoted, quotedTable } from './sql-names.ts'

export type InboxTable = InboxContract & {
  readonly columns: { readonly eventType: string | null; readonly payload: string | null }
}

/** The business side of an inbox: what an event of another region does to this region's copy. */
export type Applier = {
  readonly understands: (eventType: string) => boolean
  /** One statement that takes effect exactly when the event is the aggregate's next version. True when it did. */
  readonly apply: (tx: ServiceTransaction, event: ServiceEvent) => Promise<boolean>
  /** Version that this region holds of the event's aggregate; 0 for none. */
  readonly version: (tx: ServiceTransaction, event: ServiceEvent) => Promise<number>
}

export type Outcome = 'applied' | 'duplicate' | 'recorded' | 'quarantined' | HoldReason

export type InboxStore = {
  /**
   * Applies what can be applied of `events`, in order, in one transaction: business rows, inbox rows and carried idempotency
   * records. One outcome per event. An event it does not understand is recorded only when `mayRecord` allows it.
   * @throws LateEvents when some of them are of an epoch that was over when their key came home here (nothing was applied), SqlFailure when the
   * database refused one of them (nothing was applied, each has to be tried alone), `region-unreachable`, `outcome-unknown`
   */
  apply(events: readonly ServiceEvent[], mayRecord: MayRecord): Promise<readonly Outcome[]>
  /**
   * Puts late events into the boundary's quarantine and their ids into the inbox, in one transaction of their own. One outcome per event; nothing
   * of them is applied, their idempotency records neither. Errors as `apply`, LateEvents aside.
   */
  quarantine(events: readonly ServiceEvent[]): Promise<readonly LateOutcome[]>
}

/** Whether an event without effects may be recorded, given what became of the events before it. */
export type MayRecord = (index: number, before: readonly Outcome[]) => boolean

export function createInboxStore(pool: ServicePool, inbox: InboxTable, idempotency: IdempotencyTable, applier: Applier): InboxStore {
  const applyIn = async (tx: ServiceTransaction, events: readonly ServiceEvent[], mayRecord: MayRecord): Promise<Outcome[]> => {
    // The guard alone would not do: a barrier writes no guarded table, and neither does an event whose version is not the next one.
    const late = tx.query(findLate(events))
    const seen = tx.query(findSeen(inbox, events))
    // A second delivery applies nothing here: its version is not the next one.
    const effects = Promise.all([seen, ...events.map(async e => (applier.understands(e.eventType) ? await applier.apply(tx, e) : null))])
    // Sent in the same round trip; the guard refuses late ones, and nobody waits for that answer then.
    effects.catch(() => undefined)
    const places = new Set((await late).rows.map(row => (row['place'] as number) - 1))
    if (places.size > 0) throw new LateEvents(places)
    const [known, ...applied] = await effects
    const ids = new Set(known.rows.map(row => row['id'] as string))
    const outcomes: Outcome[] = []
    for (const [i, event] of events.entries()) {
      const effect = applied[i] ?? null
      const outcome: Outcome =
        effect === true ? 'applied' : ids.has(event.eventId) ? 'duplicate' : effect === false ? await whyNot(tx, event) : 'recorded'
      outcomes.push(outcome === 'recorded' && !mayRecord(i, outcomes) ? 'waiting' : outcome)
      if (outcomes[i] === 'applied' || outcomes[i] === 'recorded') ids.add(event.eventId)
    }
    const fresh = events.filter((_, i) => outcomes[i] === 'applied' || outcomes[i] === 'recorded')
    if (fresh.length > 0) tx.send(record(inbox, fresh))
    const answers = fresh.flatMap(e => (e.answer === null ? [] : [{ key: e.key, id: e.answer.id, response: e.answer.response }]))
    if (answers.length > 0) tx.send(carryRecords(idempotency, answers))
    return outcomes
  }

  const whyNot = async (tx: ServiceTransaction, event: ServiceEvent): Promise<HoldReason> =>
    (await applier.version(tx, event)) < event.aggregateVersion ? 'gap' : 'diverged'

  const quarantineIn = async (tx: ServiceTransaction, events: readonly ServiceEvent[]): Promise<LateOutcome[]> => {
    // First: a second delivery of what was applied in time is no late event.
    const ids = new Set((await tx.query(findSeen(inbox, events))).rows.map(row => row['id'] as string))
    const fresh = events.filter((e, i) => !ids.has(e.eventId) && events.findIndex(other => other.eventId === e.eventId) === i)
    const answers = await Promise.all(fresh.map(async e => await tx.query(quarantineEvent(e))))
    const kept = fresh.filter((_, i) => answers[i]?.rows[0]?.['outcome'] !== 'apply')
    if (kept.length > 0) tx.send(record(inbox, kept.map(withoutData)))
    const apply = new Set(fresh.filter(e => !kept.includes(e)).map(e => e.eventId))
    return events.map(e => (apply.has(e.eventId) ? 'apply' : kept.includes(e) ? 'quarantined' : 'duplicate'))
  }

  return {
    apply: async (events, mayRecord) => await pool.transaction(async tx => await applyIn(tx, events, mayRecord)),
    quarantine: async events => await pool.transaction(async tx => await quarantineIn(tx, events)),
  }
}

/** The payload stands in the quarantine; here it could be one that the column cannot take. */
function withoutData(event: ServiceEvent): ServiceEvent {
  return { ...event, data: null }
}

function findSeen(inbox: InboxTable, events: readonly ServiceEvent[]): ServiceStatement {
  const id = quoted(inbox.columns.eventId)
  return {
    name: 'homeregion-inbox-seen',
    sql: `select ${id}::text as id from ${quotedTable(inbox)} where ${id} = any($1)`,
    parameters: [events.map(e => e.eventId)],
  }
}

/** A unique violation here means that another consumer was faster: the transaction is undone, and the events are read as duplicates. */
function record(inbox: InboxTable, events: readonly ServiceEvent[]): ServiceStatement {
  const c = inbox.columns
  const columns = [c.eventId, c.key, c.ownerEpoch, c.eventType, c.payload].filter(name => name !== null)
  const values = (e: ServiceEvent): readonly unknown[] => [
    e.eventId,
    e.key,
    e.ownerEpoch,
    ...(c.eventType === null ? [] : [e.eventType]),
    ...(c.payload === null ? [] : [JSON.stringify(e.data)]),
  ]
  const places = (row: number) => columns.map((_, i) => `$${row * columns.length + i + 1}`).join(', ')
  return {
    sql: `insert into ${quotedTable(inbox)} (${[...columns, c.appliedAt].map(quoted).join(', ')}) values ${events
      .map((_, row) => `(${places(row)}, pg_catalog.clock_timestamp())`)
      .join(', ')}`,
    parameters: events.flatMap(values),
  }
}
