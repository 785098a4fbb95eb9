import { EXILE_STEPS, type Exile, type ExileStep } from '../../domain/failover.ts'
import type { Connection, Row, Statement } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { regionExiled } from './forced-refusal.ts'
import { isoTime } from './ownership-records.ts'
import { REFUSAL, sqlstate, violated } from './refusals.ts'
import { requireVersion } from './schema-version.ts'

/**
 * The source goes into exile with the failover that takes its keys, and its lease is withheld from then on whatever it was fenced by. One that
 * is there already has more to list.
 */
export function exileSource(forcedId: string, source: string, runId: string): readonly Statement[] {
  return [
    {
      sql: 'insert into homeregion_control.region_standing (region) values ($1) on conflict (region) do nothing',
      parameters: [source],
    },
    // The row is what activations towards the region wait for, so it is locked before the exile is looked at.
    { sql: 'select 1 from homeregion_control.region_standing where region = $1 for update', parameters: [source] },
    {
      sql: `update homeregion_control.exile set listed_at = null, level_at = null where region = $1 and ended_at is null`,
      parameters: [source],
    },
    {
      sql: `insert into homeregion_control.exile (id, region, forced_id) select $1::uuid, $2::text, $1::uuid
where not exists (select 1 from homeregion_control.exile where region = $2::text and ended_at is null)`,
      parameters: [forcedId, source],
    },
    { sql: 'update homeregion_control.region_standing set exiled = true where region = $1 and not exiled', parameters: [source] },
    {
      sql: `update homeregion_control.region_lease set withheld_by = $2 where region = $1 and withheld_by = ''`,
      parameters: [source, runId],
    },
  ]
}

const EXILE = `select e.*,
  (select coalesce(jsonb_agg(f.run_id order by f.at), '[]'::jsonb) from homeregion_control.forced_failover f
    where f.source = e.region and f.at >= e.since and (e.ended_at is null or f.at < e.ended_at)) as run_ids,
  (select count(*) from homeregion_control.reconcile_item i where i.decision is null and i.run_id in (
    select f.run_id from homeregion_control.forced_failover f
    where f.source = e.region and f.at >= e.since and (e.ended_at is null or f.at < e.ended_at))) as undecided
from homeregion_control.exile e`

export async function listExiles(connection: Connection, region: string | null): Promise<readonly Exile[]> {
  const found = await connection.query(
    'read',
    `${EXILE} where $1::text is null or e.region = $1 order by e.ended_at is null desc, e.since desc, e.region`,
    [region],
  )
  return found.rows.map(exile)
}

const COLUMN = { fenced: 'fenced_at', listed: 'listed_at', level: 'level_at' } as const satisfies Record<ExileStep, string>

export async function noteExile(connection: Connection, region: string, step: ExileStep): Promise<void> {
  const column = COLUMN[step]
  try {
    await connection.transaction('write', [
      requireVersion(),
      openExile(
        region,
        `update homeregion_control.exile set ${column} = coalesce(${column}, now()) where region = $1 and ended_at is null returning id`,
      ),
      ...appendAudit({ event: `exile-${step}`, runId: null, key: null, detail: { region } }),
    ])
  } catch (error) {
    if (violated(error) === 'exile_order') throw regionExiled(region, error, `${before(step)} comes before ${step}`)
    if (sqlstate(error) === REFUSAL.exiled) throw regionExiled(region, error, 'there is no exile that could go on')
    throw error
  }
}

export async function endExile(connection: Connection, region: string, reason: string): Promise<void> {
  const [newest] = await listExiles(connection, region)
  // Its answer was lost, or somebody else was faster: it is over.
  if (newest === undefined || newest.endedAt !== null) return
  const missing = EXILE_STEPS.find(step => !newest.done.includes(step))
  if (missing !== undefined) throw regionExiled(region, undefined, `it is not ${missing} yet`)
  if (newest.undecided > 0) throw regionExiled(region, undefined, `${newest.undecided} items of its reconciliation are not decided`)
  try {
    await connection.transaction('write', [
      requireVersion(),
      { sql: 'select 1 from homeregion_control.region_standing where region = $1 for update', parameters: [region] },
      openExile(
        region,
        'update homeregion_control.exile set ended_at = now(), ended_by = session_user, end_reason = $2 where region = $1 and ended_at is null returning id',
        [reason],
      ),
      { sql: 'update homeregion_control.region_standing set exiled = false where region = $1 and exiled', parameters: [region] },
      { sql: `update homeregion_control.region_lease set withheld_by = '' where region = $1`, parameters: [region] },
      ...appendAudit({ event: 'exile-ended', runId: null, key: null, detail: { region, exile: newest.id, reason } }),
    ])
  } catch (error) {
    if (sqlstate(error) === REFUSAL.exiled || violated(error) === 'exile_ended')
      throw regionExiled(region, error, error instanceof Error ? error.message : 'it cannot come back yet')
    throw error
  }
}

function openExile(region: string, update: string, more: readonly string[] = []): Statement {
  return {
    sql: `with changed as (${update})
select homeregion_control.require((select count(*) from changed) = 1, '${REFUSAL.exiled}', 'the region has no open exile')`,
    parameters: [region, ...more],
  }
}

function before(step: ExileStep): string {
  return EXILE_STEPS[EXILE_STEPS.indexOf(step) - 1] ?? ''
}

function exile(row: Row): Exile {
  return {
    id: row.id as string,
    region: row.region as string,
    runIds: row.run_ids as readonly string[],
    since: isoTime(row.since),
    done: EXILE_STEPS.filter(step => row[COLUMN[step]] !== null),
    undecided: Number(row.undecided),
    endedAt: row.ended_at === null ? null : isoTime(row.ended_at),
    endedBy: row.ended_by as string | null,
    endReason: row.end_reason as string | null,
  }
}
