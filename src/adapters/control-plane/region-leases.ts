import { HomeregionError } from '../../domain/errors.ts'
import type { LeaseState } from '../../domain/failover.ts'
import type { RunLease } from '../../domain/journal.ts'
import type { Connection, Row, Statement } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { forcedInterlockRefused, regionExiled } from './forced-refusal.ts'
import { REFUSAL, sqlstate } from './refusals.ts'
import { underLease } from './run-lease.ts'
import { requireVersion } from './schema-version.ts'

const MS = "double precision * interval '1 millisecond'"

/** Taken when it is free or one's own, by our clock alone. */
export async function leadAgents(connection: Connection, agentId: string, forMs: number): Promise<boolean> {
  const answers = await connection.transaction('write', [
    requireVersion(),
    {
      sql: `insert into homeregion_control.agent_lead as l (agent, until) values ($1, clock_timestamp() + $2::${MS})
on conflict (id) do update set agent = excluded.agent, until = clock_timestamp() + $2::${MS}, actor = session_user
where l.agent = excluded.agent or l.until <= clock_timestamp()
returning agent`,
      parameters: [agentId, forMs],
    },
  ])
  return answers[1]?.rows.length === 1
}

/**
 * One row a region, so that a grant and a run that withholds it take turns: the one that comes second sees the other. Our bound begins now, after
 * the agent read the region's clock, and is therefore later than the end the region will be told.
 */
export async function grantLease(
  connection: Connection,
  region: string,
  agentId: string,
  durationMs: number,
  marginMs: number,
  above = 0,
  compared = false,
): Promise<{ readonly generation: number; readonly stops: boolean }> {
  const statements: readonly Statement[] = [
    requireVersion(),
    // Share: while this grant is on its way, nobody else can take the lead.
    { sql: 'select 1 from homeregion_control.agent_lead where id = 1 for share' },
    {
      sql: `select homeregion_control.require(exists (
  select 1 from homeregion_control.agent_lead where agent = $1 and until > clock_timestamp()), '${REFUSAL.notLeading}', 'another agent leads')`,
      parameters: [agentId],
    },
    {
      sql: `select homeregion_control.require(not exists (
  select 1 from homeregion_control.region_standing where region = $1 and exiled), '${REFUSAL.leaseWithheld}', 'the region is in exile')`,
      parameters: [region],
    },
    {
      sql: `select homeregion_control.require($3 or $2 <= coalesce((
  select generation from homeregion_control.region_lease where region = $1), 0), '${REFUSAL.behind}', 'the region knows a later grant')`,
      parameters: [region, above, compared],
    },
    // One that took over may have been behind in what no grant shows: a dark region was granted nothing while its keys were taken.
    {
      sql: `select homeregion_control.require($2 or not exists (
  select 1 from homeregion_control.region_lease where region = $1 and life <> '' and life <> homeregion_control.server_life()),
  '${REFUSAL.otherServer}', 'another server made the last grant')`,
      parameters: [region, compared],
    },
    {
      sql: `insert into homeregion_control.region_lease as l (region, generation, agent, over_at, duration_ms, margin_ms, life)
values ($1, $5::bigint + 1, $2, clock_timestamp() + ($3::double precision + $4::double precision) * interval '1 millisecond', $3, $4,
  coalesce(homeregion_control.server_life(), ''))
on conflict (region) do update set generation = greatest(l.generation, $5::bigint) + 1, agent = excluded.agent, duration_ms = excluded.duration_ms,
  margin_ms = excluded.margin_ms, life = excluded.life,
  over_at = greatest(l.over_at, clock_timestamp() + ($3::double precision + $4::double precision) * interval '1 millisecond')
returning generation, stops`,
      parameters: [region, agentId, durationMs, marginMs, above],
    },
  ]
  try {
    const answers = await connection.transaction('write', statements)
    const row = answers.at(-1)?.rows[0]
    return { generation: Number(row?.generation), stops: row?.stops === true }
  } catch (error) {
    if (sqlstate(error) === REFUSAL.notLeading)
      throw new HomeregionError(
        'superseded',
        { fact: `agent ${agentId} does not lead: another does, or its lead is over`, state: 'No lease was granted.' },
        { cause: error },
      )
    if (sqlstate(error) === REFUSAL.leaseWithheld) throw leaseWithheld(region, error)
    if (sqlstate(error) === REFUSAL.behind)
      throw toBeCompared(error, true, `${region} knows grant ${above} of its lease, which the control plane does not: it has lost commits`)
    if (sqlstate(error) === REFUSAL.otherServer)
      throw toBeCompared(
        error,
        false,
        `another server of the control plane made the last grant to ${region}: this one may have forgotten what came after`,
      )
    throw error
  }
}

/** `lost`: commits were lost for certain. */
function toBeCompared(cause: unknown, lost: boolean, fact: string): HomeregionError {
  return new HomeregionError(
    'control-plane-behind',
    { fact, state: 'No lease was granted.', next: 'homeregion doctor' },
    { cause, fields: { lost } },
  )
}

/** Of the agent's own last grant only: another that has granted since has an answer of its own. */
export async function noteLeaseStops(connection: Connection, region: string, agentId: string, stops: boolean): Promise<void> {
  await connection.transaction('write', [
    requireVersion(),
    {
      sql: 'update homeregion_control.region_lease set stops = $3 where region = $1 and agent = $2',
      parameters: [region, agentId, stops],
    },
  ])
}

/** Another open run may withhold it already: it is granted to nobody all the same, and both wait for the same end. */
export async function withholdLease(connection: Connection, region: string, lease: RunLease): Promise<LeaseState> {
  const statements: readonly Statement[] = [
    requireVersion(),
    holdRun(lease),
    {
      sql: `select homeregion_control.require((select intent from homeregion_control.run where id = $1) = 'failover',
  '${REFUSAL.leaseNotOver}', 'only a run of intent failover may withhold a lease')`,
      parameters: [lease.runId],
    },
    {
      sql: `insert into homeregion_control.region_lease (region, generation, agent, over_at, duration_ms, margin_ms)
values ($1, 0, '', clock_timestamp(), 0, 0) on conflict (region) do nothing`,
      parameters: [region],
    },
    // Of a run that is closed and left it withheld, another may take it over: it stays withheld all the while.
    {
      sql: `update homeregion_control.region_lease l set withheld_by = $2 where l.region = $1 and (l.withheld_by in ('', $2)
    or not exists (select 1 from homeregion_control.run r where r.id = l.withheld_by and r.open))`,
      parameters: [region, lease.runId],
    },
    { sql: `${LEASE} where l.region = $1`, parameters: [region] },
    ...appendAudit({ event: 'lease-withheld', runId: lease.runId, key: null, detail: { region } }),
  ]
  try {
    const answers = await underLease(connection, lease, async () => await connection.transaction('write', statements))
    const row = answers[5]?.rows[0]
    if (row === undefined) throw leaseWithheld(region)
    return leaseState(row)
  } catch (error) {
    if (sqlstate(error) === REFUSAL.leaseNotOver) throw forcedInterlockRefused('only a run of intent failover may withhold a lease', error)
    throw error
  }
}

/** Of a run: what it withholds itself, unless the region is in exile by now; there it stays withheld until the region is back. */
export async function releaseLease(connection: Connection, region: string, lease: RunLease | null): Promise<void> {
  const statements: readonly Statement[] = [
    requireVersion(),
    ...(lease === null ? [] : [holdRun(lease)]),
    {
      sql: `update homeregion_control.region_lease l set withheld_by = '' where l.region = $1 and (l.withheld_by = $2::text
    and not exists (select 1 from homeregion_control.region_standing s where s.region = $1 and s.exiled)
  or ($2::text is null and not exists (select 1 from homeregion_control.run r where r.id = l.withheld_by and r.open)))`,
      parameters: [region, lease?.runId ?? null],
    },
    {
      sql: `select homeregion_control.require($2::text is not null or not exists (
  select 1 from homeregion_control.region_lease where region = $1 and withheld_by <> ''), '${REFUSAL.leaseWithheld}', 'another run withholds it')`,
      parameters: [region, lease?.runId ?? null],
    },
    ...appendAudit({ event: 'lease-released', runId: lease?.runId ?? null, key: null, detail: { region } }),
  ]
  const work = async () => await connection.transaction('write', statements)
  try {
    await (lease === null ? work() : underLease(connection, lease, work))
  } catch (error) {
    if (sqlstate(error) === REFUSAL.exiled) throw regionExiled(region, error)
    if (sqlstate(error) === REFUSAL.leaseWithheld) throw leaseWithheld(region, error)
    throw error
  }
}

const LEASE = `select l.region, l.generation, l.agent, l.duration_ms, l.margin_ms, l.withheld_by, l.stops,
  coalesce(l.life = homeregion_control.server_life(), false) as grants_known,
  ceil(extract(epoch from (l.over_at - clock_timestamp())) * 1000)::bigint as left_ms
from homeregion_control.region_lease l`

export async function readLeases(connection: Connection): Promise<readonly LeaseState[]> {
  const found = await connection.query('read', `${LEASE} order by l.region`)
  return found.rows.map(leaseState)
}

/** The run is held under this token, and stays so until the commit. */
export function holdRun(lease: RunLease): Statement {
  return {
    sql: `with held as (select 1 from homeregion_control.run where id = $1 and token = $2 and open for update)
select homeregion_control.require((select count(*) from held) = 1, '${REFUSAL.lease}', 'the run is not held under this token')`,
    parameters: [lease.runId, lease.token],
  }
}

function leaseState(row: Row): LeaseState {
  const none = (text: unknown) => (text === '' ? null : (text as string))
  return {
    region: row.region as string,
    generation: Number(row.generation),
    grantedTo: none(row.agent),
    leftMs: Number(row.left_ms),
    durationMs: Number(row.duration_ms),
    marginMs: Number(row.margin_ms),
    withheldBy: none(row.withheld_by),
    stops: row.stops === true,
    grantsKnown: row.grants_known === true,
  }
}

function leaseWithheld(region: string, cause?: unknown): HomeregionError {
  return new HomeregionError(
    'lease-withheld',
    {
      fact: `the lease of ${region} is withheld: a failover waits it out, or the region is in exile`,
      state: 'No lease was granted or released.',
      next: 'homeregion status',
    },
    { ...(cause === undefined ? {} : { cause }), fields: { region } },
  )
}
