import { type BegunDrill, DRILL_MARK, type UnfinishedDrill } from '../../domain/drill.ts'
import type { Json } from '../../domain/evidence.ts'
import type { Drill, DrillOutcome, DrillResult } from '../../domain/failover.ts'
import type { Connection } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { isoTime } from './ownership-records.ts'
import { requireVersion } from './schema-version.ts'
import { storableJson } from './storable-json.ts'

export async function beginDrill(connection: Connection, { id, home, target, keys, holder }: BegunDrill): Promise<void> {
  const known = await connection.query('read', 'select 1 from homeregion_control.drill_begun where id = $1', [id])
  // Its answer was lost.
  if (known.rows.length > 0) return
  await connection.transaction('write', [
    requireVersion(),
    {
      sql: `insert into homeregion_control.drill_begun (id, home, target, keys, holder_host, holder_pid, holder_user)
values ($1, $2, $3, $4::jsonb, $5, $6, $7)`,
      parameters: [id, home, target, storableJson(keys), holder.host, holder.pid, holder.user],
    },
    ...appendAudit({ event: 'drill-begun', runId: null, key: null, detail: { id, home, target, keys } }),
  ])
}

/** A key is its newest drill's business: whatever an older one left was brought home before that one began. */
const newestOf = (key: string) => `not exists (select 1 from homeregion_control.drill_begun later
    where later.keys ? ${key} and (later.at, later.id) > (b.at, b.id))`

/**
 * Whatever ended it: by where its keys are, and who brought them there. One that gave way leaves its keys where they were asked for; one that is
 * recorded as returned is not looked at again.
 */
const UNFINISHED = `select b.*, away.keys as away, open.run_id as open_run from homeregion_control.drill_begun b
cross join lateral (
  select coalesce(jsonb_agg(o.key order by o.key), '[]'::jsonb) as keys from jsonb_array_elements_text(b.keys) k
  join homeregion_control.ownership o on o.key = k
  cross join lateral (select l.run_id, l.at from homeregion_control.ownership_log l
    where l.key = o.key and l.from_home <> l.to_home order by l.seq desc limit 1) moved
  join homeregion_control.run r on r.id = moved.run_id and starts_with(r.reason, $1)
  where o.home_region <> b.home and moved.at >= b.at and ${newestOf('k')}
) away
left join lateral (
  select r.id as run_id from homeregion_control.run r
  join homeregion_control.run_key k on k.run_id = r.id
  where r.open and k.open and starts_with(r.reason, $1) and r.started_at >= b.at
    and k.key in (select jsonb_array_elements_text(b.keys)) and ${newestOf('k.key')} limit 1
) open on true
where not exists (select 1 from homeregion_control.drill d
  where d.id = b.id and (d.outcome = 'pre-empted' or d.detail -> 'returned' = 'true'))
and (away.keys <> '[]' or open.run_id is not null)
order by b.at, b.id`

export async function unfinishedDrills(connection: Connection): Promise<readonly UnfinishedDrill[]> {
  const found = await connection.query('read', UNFINISHED, [DRILL_MARK])
  return found.rows.map(row => ({
    id: row.id as string,
    home: row.home as string,
    target: row.target as string,
    keys: row.keys as readonly string[],
    holder: { host: row.holder_host as string, pid: Number(row.holder_pid), user: row.holder_user as string },
    away: row.away as readonly string[],
    openRun: row.open_run as string | null,
    at: isoTime(row.at),
    by: row.actor as string,
  }))
}

export async function recordDrill(connection: Connection, result: DrillResult): Promise<void> {
  const known = await connection.query('read', 'select 1 from homeregion_control.drill where id = $1', [result.id])
  if (known.rows.length > 0) return
  const { id, source, target, keys, outcome, recoveryMs, objectiveMs, duplicates, gaps, tookMs, detail } = result
  await connection.transaction('write', [
    requireVersion(),
    {
      sql: `insert into homeregion_control.drill
  (id, source, target, keys, outcome, recovery_ms, objective_ms, duplicates, gaps, took_ms, detail)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::jsonb)`,
      parameters: [id, source, target, keys, outcome, recoveryMs, objectiveMs, duplicates, gaps, tookMs, storableJson(detail)],
    },
    ...appendAudit({ event: 'drill', runId: null, key: null, detail: { id, source, target, keys, outcome, recoveryMs, duplicates, gaps } }),
  ])
}

const YIELD = 'drill-asked-to-yield'

/**
 * The audit log is where it is asked, and where the drill looks: it is there for good who wanted the keys. It is looked for among the newest entries
 * only, since there is no index by run and the log is long; a drill looks twice a second, and the one that asks waits for seconds.
 */
const NEWEST = 5_000

export async function askDrillToYield(connection: Connection, runId: string): Promise<void> {
  if ((await drillAskedToYield(connection, runId)) !== null) return
  await connection.transaction('write', [requireVersion(), ...appendAudit({ event: YIELD, runId, key: null, detail: {} })])
}

export async function drillAskedToYield(connection: Connection, runId: string): Promise<string | null> {
  const found = await connection.query(
    'read',
    `select a.actor from homeregion_control.audit a
    where a.seq > (select h.seq from homeregion_control.audit_head h where h.id = 1) - $3::bigint and a.run_id = $1 and a.event = $2
    order by a.seq limit 1`,
    [runId, YIELD, NEWEST],
  )
  return (found.rows[0]?.actor as string | undefined) ?? null
}

export async function lastDrills(connection: Connection): Promise<readonly Drill[]> {
  const found = await connection.query(
    'read',
    `select d.* from homeregion_control.drill d
    where not exists (select 1 from homeregion_control.drill later
      where later.source = d.source and later.target = d.target and (later.at, later.id) > (d.at, d.id))
    order by d.source, d.target`,
  )
  return found.rows.map(row => ({
    id: row.id as string,
    source: row.source as string,
    target: row.target as string,
    keys: Number(row.keys),
    outcome: row.outcome as DrillOutcome,
    recoveryMs: row.recovery_ms as number | null,
    objectiveMs: row.objective_ms as number | null,
    duplicates: row.duplicates as number | null,
    gaps: row.gaps as number | null,
    tookMs: Number(row.took_ms),
    detail: row.detail as Json,
    at: isoTime(row.at),
    by: row.actor as string,
  }))
}
