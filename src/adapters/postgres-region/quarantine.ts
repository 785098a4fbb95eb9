import type { RegionDatabase } from '../../domain/ports.ts'
import { QUARANTINE_DECISIONS, type QuarantinedEvent } from '../../domain/quarantine.ts'
import type { Connection, Row } from '../postgres/connection.ts'
import { isoTime } from './region-facts.ts'

export type Quarantine = Pick<RegionDatabase, 'quarantined' | 'quarantineCount' | 'decideQuarantined'>

const COLUMNS = `position::text, event_id, key, owner_epoch, current_epoch, source_region, home_region, aggregate_type, aggregate_id, aggregate_version,
 event_type, occurred_at, envelope, payload::text as payload, quarantined_at, run_id, decision, reason, decided_by, decided_at`

/** What `homeregion.quarantine` holds. `changes`: the session that decisions go over. */
export function createQuarantine(reads: Connection, changes: Connection): Quarantine {
  return {
    quarantined: async ({ key, undecided, limit, after }) => {
      const { rows } = await reads.query(
        'read',
        `select ${COLUMNS} from homeregion.quarantine
         where ($1::text is null or key = $1::text collate "C") and position > coalesce($2::bigint, 0) and not ($3 and decision is not null)
         order by position limit $4`,
        [key ?? null, after ?? null, undecided === true, limit],
      )
      return rows.map(quarantinedEvent)
    },
    quarantineCount: async () => {
      const { rows } = await reads.query(
        'read',
        'select count(*) as total, count(*) filter (where decision is null) as undecided from homeregion.quarantine',
      )
      return { total: Number(rows[0]?.total), undecided: Number(rows[0]?.undecided) }
    },
    decideQuarantined: async (eventIds, order) => {
      const { rows } = await changes.query('write', `select ${COLUMNS} from homeregion.decide_quarantined($1, $2, $3, $4)`, [
        eventIds,
        order.runId,
        order.decision,
        order.reason,
      ])
      return rows.map(quarantinedEvent)
    },
  }
}

/** Regions that share a database have no events of each other to be late. */
export const NO_QUARANTINE: Quarantine = {
  quarantined: () => Promise.resolve([]),
  quarantineCount: () => Promise.resolve({ total: 0, undecided: 0 }),
  decideQuarantined: () => Promise.resolve([]),
}

function quarantinedEvent(row: Row): QuarantinedEvent {
  return {
    position: String(row.position),
    eventId: String(row.event_id),
    key: String(row.key),
    ownerEpoch: Number(row.owner_epoch),
    currentEpoch: Number(row.current_epoch),
    sourceRegion: text(row.source_region),
    homeRegion: text(row.home_region),
    aggregateType: text(row.aggregate_type),
    aggregateId: text(row.aggregate_id),
    aggregateVersion: row.aggregate_version === null ? null : Number(row.aggregate_version),
    eventType: text(row.event_type),
    occurredAt: row.occurred_at === null ? null : isoTime(row.occurred_at),
    envelope: row.envelope as Readonly<Record<string, unknown>>,
    payload: text(row.payload),
    quarantinedAt: isoTime(row.quarantined_at),
    decided: decided(row),
  }
}

function decided(row: Row): QuarantinedEvent['decided'] {
  const decision = QUARANTINE_DECISIONS.find(d => d === row.decision)
  if (decision === undefined) return null
  return { runId: String(row.run_id), decision, reason: String(row.reason), by: String(row.decided_by), at: isoTime(row.decided_at) }
}

function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}
