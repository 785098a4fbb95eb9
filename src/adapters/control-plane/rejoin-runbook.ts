import type { RejoinRunbook } from '../../domain/rejoin.ts'
import type { PinnedRunbook } from '../../domain/runbook.ts'
import type { Connection } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { regionExiled } from './forced-refusal.ts'
import { isoTime } from './ownership-records.ts'
import { REFUSAL, sqlstate } from './refusals.ts'
import { requireVersion } from './schema-version.ts'

/** A failover that came after a step has taken more keys: what the step was there for has to be done for them as well. */
export async function readRejoinRunbook(connection: Connection, region: string): Promise<RejoinRunbook | null> {
  const found = await connection.query(
    'read',
    `select r.*, (select coalesce(jsonb_agg(distinct s.step), '[]'::jsonb) from homeregion_control.rejoin_step s
  where s.exile_id = r.exile_id and s.nth = r.nth
    and s.done_at > (select max(f.at) from homeregion_control.forced_failover f where f.source = e.region)) as done
from homeregion_control.exile e join homeregion_control.rejoin_runbook r on r.exile_id = e.id
where e.region = $1 and e.ended_at is null order by r.nth desc limit 1`,
    [region],
  )
  const row = found.rows[0]
  if (row === undefined) return null
  return {
    nth: Number(row.nth),
    name: row.name as string,
    text: row.text as string,
    sha256: row.sha256 as string,
    origin: row.origin as string,
    pinnedAt: isoTime(row.pinned_at),
    pinnedBy: row.pinned_by as string,
    done: row.done as readonly string[],
  }
}

export async function pinRejoinRunbook(
  connection: Connection,
  region: string,
  { runbook, text, sha256, origin }: PinnedRunbook,
  after: number,
): Promise<RejoinRunbook> {
  try {
    await connection.transaction('write', [
      requireVersion(),
      {
        sql: `insert into homeregion_control.rejoin_runbook (exile_id, nth, name, text, sha256, origin)
select e.id, $2::bigint, $3, $4, $5, $6 from homeregion_control.exile e where e.region = $1 and e.ended_at is null`,
        parameters: [region, after + 1, runbook.name, text, sha256, origin],
      },
      ...appendAudit({
        ...{ event: 'rejoin-runbook', runId: null, key: null },
        detail: { region, nth: after + 1, name: runbook.name, sha256, origin },
      }),
    ])
  } catch (error) {
    // Somebody else pinned one at the same moment: theirs is on record.
    if (sqlstate(error) !== '23505') throw error
  }
  const pinned = await readRejoinRunbook(connection, region)
  if (pinned === null) throw regionExiled(region, undefined, 'there is no exile that could go on')
  return pinned
}

export async function noteRejoinStep(connection: Connection, region: string, step: string): Promise<void> {
  try {
    await connection.transaction('write', [
      requireVersion(),
      {
        sql: `with noted as (
  insert into homeregion_control.rejoin_step (exile_id, nth, step)
  select r.exile_id, max(r.nth), $2 from homeregion_control.rejoin_runbook r
  join homeregion_control.exile e on e.id = r.exile_id where e.region = $1 and e.ended_at is null group by 1 returning step
)
select homeregion_control.require((select count(*) from noted) = 1, '${REFUSAL.exiled}', 'the region has no open exile with a runbook')`,
        parameters: [region, step],
      },
      ...appendAudit({ event: 'rejoin-step', runId: null, key: null, detail: { region, step } }),
    ])
  } catch (error) {
    if (sqlstate(error) === REFUSAL.exiled) throw regionExiled(region, error, 'there is no exile that could go on')
    throw error
  }
}
