import type { ServicePool, ServiceStatement, ServiceTransaction } from '../adapters/postgres/service-pool.ts'
import type { InboxContract } from '../domain/config.ts'
import type { ServiceEvent } from './envelope.ts'
import { carryRecords, type IdempotencyTable } from './idempotency.ts'
import type { HoldReason } from './inbox-held.ts'
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

export type Outcome = 'applied' | 'duplicate' | 'recorded' | HoldReason

export type InboxStore = {
  /**
   * Applies what can be applied of `events`, in order, in one transaction: business rows, inbox rows and carried idempotency
   * records. One outcome per event. An event it does not understand is recorded only when `mayRecord` allows it.
   * @throws SqlFailure when the database refused one of them (nothing was applied, each has to be tried alone), `region-unreachable`, `outcome-unknown`
   */
  apply(events: readonly ServiceEvent[], mayRecord: MayRecord): Promise<readonly Outcome[]>
}

/** Whether an event without effects may be recorded, given what became of the events before it. */
export type MayRecord = (index: number, before: readonly Outcome[]) => boolean

export function createInboxStore(pool: ServicePool, inbox: InboxTable, idempotency: IdempotencyTable, applier: Applier): InboxStore {
  const applyIn = async (tx: ServiceTransaction, events: readonly ServiceEvent[], mayRecord: MayRecord): Promise<Outcome[]> => {
    const seen = tx.query(findSeen(inbox, events))
    // A second delivery applies nothing here: its version is not the next one.
    const effects = events.map(async e => (applier.understands(e.eventType) ? await applier.apply(tx, e) : null))
    const [known, ...applied] = await Promise.all([seen, ...effects])
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

  return {
    apply: async (events, mayRecord) => await pool.transaction(async tx => await applyIn(tx, events, mayRecord)),
  }
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
