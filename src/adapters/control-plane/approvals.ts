import { HomeregionError } from '../../domain/errors.ts'
import type { Approval, ApprovalVerdict } from '../../domain/failover.ts'
import type { Connection, Row } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { isoTime } from './ownership-records.ts'
import { REFUSAL, sqlstate, violated } from './refusals.ts'
import { requireVersion } from './schema-version.ts'

/** Who it is says the database: session_user, which no argument and no environment can change. */
export async function approve(
  connection: Connection,
  runId: string,
  verdict: ApprovalVerdict,
  reason: string,
  breakGlass: boolean,
): Promise<Approval> {
  try {
    const answers = await connection.transaction('write', [
      requireVersion(),
      {
        sql: `with said as (
  insert into homeregion_control.approval (run_id, starter, verdict, reason, break_glass)
  select r.id, r.started_by, $2, $3, $4 from homeregion_control.run r where r.id = $1 and r.open
  returning *
)
select said.*, homeregion_control.require((select count(*) from said) = 1, '${REFUSAL.lease}', 'the run is not open')
from (select 1) one left join said on true`,
        parameters: [runId, verdict, reason, breakGlass],
      },
      ...appendAudit({ event: breakGlass ? 'BREAK-GLASS' : `run-${verdict}`, runId, key: null, detail: { verdict, reason, breakGlass } }),
    ])
    const row = answers[1]?.rows[0]
    if (row === undefined) throw new RangeError('an insert returned nothing')
    return approval(row)
  } catch (error) {
    if (sqlstate(error) === REFUSAL.lease) throw await notOpen(connection, runId, error)
    if (violated(error) === 'approval_once') return await said(connection, runId, verdict, error)
    const why = problem(error)
    if (why === null) throw error
    throw refused(why, error)
  }
}

export async function readApprovals(connection: Connection, runId: string): Promise<readonly Approval[]> {
  const found = await connection.query('read', 'select * from homeregion_control.approval where run_id = $1 order by at, approver', [runId])
  return found.rows.map(approval)
}

/** The same word twice is one word: the first answer may have been lost. */
async function said(connection: Connection, runId: string, verdict: ApprovalVerdict, cause: unknown): Promise<Approval> {
  const found = await connection.query('read', 'select * from homeregion_control.approval where run_id = $1 and approver = session_user', [
    runId,
  ])
  const row = found.rows[0]
  if (row !== undefined && row.verdict === verdict) return approval(row)
  throw refused(`this login has ${row === undefined ? 'spoken' : (row.verdict as string)} already`, cause)
}

function problem(error: unknown): string | null {
  if (violated(error) === 'approval_by_another') return 'the one who began a run cannot approve it'
  if (violated(error) === 'approval_break_glass') return 'breaking the glass approves, and needs a reason'
  if (sqlstate(error) !== REFUSAL.notApproved) return null
  return `${error instanceof Error ? error.message : 'the login is not among the approvers'} of the control plane's policy, which is policy.approvals as of the last homeregion init`
}

async function notOpen(connection: Connection, runId: string, cause: unknown): Promise<HomeregionError> {
  const found = await connection.query('read', 'select state from homeregion_control.run where id = $1', [runId])
  const state = found.rows[0]?.state as string | undefined
  return state === undefined
    ? new HomeregionError(
        'unknown-run',
        { fact: `the control plane has no run ${runId}`, state: 'Nothing was recorded.', next: 'homeregion run list' },
        { cause },
      )
    : new HomeregionError(
        'run-closed',
        { fact: `run ${runId} is closed: ${state}`, state: 'Nothing was recorded.', next: `homeregion run show ${runId}` },
        { cause },
      )
}

const NEXT =
  'the same command with another login of policy.approvals; or homeregion init (--without the dark region), if that was changed since'

function refused(why: string, cause: unknown): HomeregionError {
  return new HomeregionError('approval-refused', { fact: why, state: 'Nothing was recorded.', next: NEXT }, { cause })
}

function approval(row: Row): Approval {
  return {
    runId: row.run_id as string,
    verdict: row.verdict as ApprovalVerdict,
    approver: row.approver as string,
    reason: row.reason as string,
    breakGlass: row.break_glass === true,
    at: isoTime(row.at),
  }
}
