import type { Config, RegionConfig } from '../../domain/config.ts'
import type { RegionPulse } from '../../domain/pulse.ts'
import type { Row, Secrets } from '../postgres/connection.ts'
import { identifier, relation } from './quoting.ts'
import { codedFor, operatorSessions } from './region-session.ts'

/** A region as an agent keeps it alive and looks at it: leases, heartbeats, and how far its events have come. */
export function createRegionPulse(region: RegionConfig, config: Config, secrets: Secrets, callTimeoutMs: number): RegionPulse {
  const session = operatorSessions(region, config, secrets, callTimeoutMs)
  // A lease that comes late is a write stop: nothing else stands in front of it.
  const leases = session('homeregion agent')
  const looks = session('homeregion agent observer')
  const { outbox, inbox } = config
  const published = outbox.columns.publishedAt
  const coded = codedFor(region.name)
  return {
    region: region.name,
    readClock: async () =>
      await coded(async () => {
        const { rows } = await leases.query(
          'read',
          `select c::text as reading, (extract(epoch from c) * 1000)::float8 as epoch,
  coalesce((select generation from homeregion.lease where region = $1), 0) as generation from homeregion.read_clock() c`,
          [region.name],
        )
        const [row] = rows
        return { reading: String(row?.reading), epochMs: Number(row?.epoch), generation: Number(row?.generation) }
      }),
    grantLease: async (generation, from, durationMs) =>
      await coded(async () => {
        const { rows } = await leases.query(
          'write',
          `select homeregion.grant_lease($1, $2, $3::timestamptz + $4::double precision * interval '1 millisecond'), homeregion.lease_stops($1) as stops`,
          [region.name, generation, from.reading, durationMs],
        )
        return { stops: rows[0]?.stops === true }
      }),
    heartbeat: async eventId => await coded(async () => void (await looks.query('write', 'select homeregion.heartbeat($1)', [eventId]))),
    unpublished: async () =>
      await coded(async () => (published === null ? null : backlog((await looks.query('read', unpublishedSql(published))).rows[0] ?? {}))),
    inboxHas: async eventIds =>
      await coded(async () => {
        const id = identifier(inbox.columns.eventId)
        // One look-up by the key each, whatever the type of the column is.
        const asked = eventIds.map(
          async e => (await looks.query('read', `select 1 from ${relation(inbox)} where ${id} = $1 limit 1`, [e])).rows.length > 0,
        )
        const found = await Promise.all(asked)
        return eventIds.filter((_, i) => found[i] === true)
      }),
    close: async () => void (await Promise.all([leases.close(), looks.close()])),
  }

  function unpublishedSql(mark: string): string {
    return `select count(*) as count, (extract(epoch from clock_timestamp() - min(${identifier(outbox.columns.occurredAt)})) * 1000)::float8 as oldest
            from ${relation(outbox)} where ${identifier(mark)} is null`
  }
}

function backlog(row: Row): { count: number; oldestAgeMs: number | null } {
  return { count: Number(row.count), oldestAgeMs: row.oldest === null || row.oldest === undefined ? null : Number(row.oldest) }
}
