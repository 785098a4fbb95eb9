import type { ObservationReport } from '../../domain/failover.ts'
import type { RegionObservation, Sight } from '../../domain/loss.ts'
import type { Connection } from '../postgres/connection.ts'
import { requireVersion } from './schema-version.ts'
import { storableJson } from './storable-json.ts'

/** Without a row of the audit chain: it happens every second, and says nothing that anybody did. */
export async function recordObservation(connection: Connection, report: ObservationReport): Promise<void> {
  const { observer, takenAgoMs, observations, contacts } = report
  await connection.transaction('write', [
    requireVersion(),
    {
      sql: `insert into homeregion_control.region_observation as o
  (region, observer, taken_at, unpublished, oldest_unpublished_ms, not_applied, highest_per_second)
select r.region, $1::text, clock_timestamp() - $2::double precision * interval '1 millisecond', r.unpublished, r."oldestUnpublishedMs",
  r."notApplied", r."highestPerSecond"
from jsonb_to_recordset($3::jsonb) as r(region text, unpublished bigint, "oldestUnpublishedMs" double precision, "notApplied" jsonb,
  "highestPerSecond" double precision) order by r.region
on conflict (region, observer) do update set taken_at = excluded.taken_at, unpublished = excluded.unpublished,
  oldest_unpublished_ms = excluded.oldest_unpublished_ms, not_applied = excluded.not_applied, highest_per_second = excluded.highest_per_second
where o.taken_at <= excluded.taken_at`,
      parameters: [observer, takenAgoMs, storableJson(observations)],
    },
    {
      sql: `insert into homeregion_control.region_sight as s (region, vantage, what, last_contact_at)
select c.region, $1::text, c.what, case when c.reached then clock_timestamp() - $2::double precision * interval '1 millisecond' end
from jsonb_to_recordset($3::jsonb) as c(region text, what text, reached boolean) order by c.region, c.what
on conflict (region, vantage, what) do update set last_contact_at = greatest(s.last_contact_at, excluded.last_contact_at)`,
      parameters: [observer, takenAgoMs, storableJson(contacts)],
    },
  ])
}

export async function readObservations(connection: Connection): Promise<readonly RegionObservation[]> {
  const found = await connection.query(
    'read',
    `select o.*, extract(epoch from (clock_timestamp() - o.taken_at)) * 1000 as age_ms
    from homeregion_control.region_observation o order by o.region, o.observer`,
  )
  return found.rows.map(row => ({
    region: row.region as string,
    observer: row.observer as string,
    ageMs: Math.max(0, Math.ceil(Number(row.age_ms))),
    unpublished: Number(row.unpublished),
    oldestUnpublishedMs: row.oldest_unpublished_ms as number | null,
    notApplied: row.not_applied as RegionObservation['notApplied'],
    highestPerSecond: row.highest_per_second as number | null,
  }))
}

export async function readSights(connection: Connection): Promise<readonly Sight[]> {
  const found = await connection.query(
    'read',
    `select s.*, extract(epoch from (clock_timestamp() - s.last_contact_at)) * 1000 as age_ms
    from homeregion_control.region_sight s order by s.region, s.vantage, s.what`,
  )
  return found.rows.map(row => ({
    region: row.region as string,
    vantage: row.vantage as string,
    what: row.what as Sight['what'],
    // Rounded down: a contact never looks older than it is.
    lastContactAgeMs: row.last_contact_at === null ? null : Math.max(0, Math.floor(Number(row.age_ms))),
  }))
}
