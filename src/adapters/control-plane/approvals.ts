import type { Approval, ApprovalPolicy, ApprovalVerdict } from '../../domain/approval.ts'
import { HomeregionError } from '../../domain/errors.ts'
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
): Promise<Said> {
  try {
    const answers = await connection.transaction('write', [
      requireVersion(),
      {
        sql: `with said as (
  insert into homeregion_control.approval (run_id, starter, verdict, reason, break_glass)
  select r.id, r.started_by, $2, $3, $4 from homeregion_control.run r where r.id = $1 and r.open and not ($2 = 'approved' and exists (
    select 1 from homeregion_control.approval a where a.run_id = r.id and a.verdict = 'rejected'
  ))
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
    return { ...approval(row), saidBefore: false }
  } catch (error) {
    if (sqlstate(error) === REFUSAL.lease) throw await notOpen(connection, runId, error)
    if (violated(error) === 'approval_once') return await said(connection, runId, verdict, error)
    throw problem(runId, error) ?? error
  }
}

type Said = Approval & { readonly saidBefore: boolean }

export async function readApprovalPolicy(connection: Connection, runId: string | null): Promise<ApprovalPolicy> {
  const found = await connection.query(
    'read',
    `select p.approvers, p.needed, p.above_keys, p.set_at, coalesce((select r.started_by from homeregion_control.run r where r.id = $1::text),
      session_user) as starter from homeregion_control.approval_policy p where p.in_force`,
    [runId],
  )
  const row = found.rows[0]
  if (row === undefined)
    throw new HomeregionError('not-initialised', {
      fact: 'the control plane has no policy of who approves',
      state: 'Nothing was changed.',
      next: 'homeregion init',
    })
  return {
    approvers: row.approvers as readonly string[],
    needed: Number(row.needed),
    aboveKeys: Number(row.above_keys),
    since: isoTime(row.set_at),
    starter: row.starter as string,
  }
}

export async function readApprovals(connection: Connection, runId: string): Promise<readonly Approval[]> {
  const found = await connection.query('read', 'select * from homeregion_control.approval where run_id = $1 order by at, approver', [runId])
  return found.rows.map(approval)
}

/** The same word twice is one word: the first answer may have been lost. */
async function said(connection: Connection, runId: string, verdict: ApprovalVerdict, cause: unknown): Promise<Said> {
  const found = await connection.query('read', 'select * from homeregion_control.approval where run_id = $1 and approver = session_user', [
    runId,
  ])
  const row = found.rows[0]
  if (row !== undefined && row.verdict === verdict) return { ...approval(row), saidBefore: true }
  throw refused(
    `${row === undefined ? 'this login has spoken' : `${row.approver as string} has ${row.verdict as string} it`} already: the first word stands`,
    `homeregion abort ${runId}   (or another login rejects it)`,
    cause,
  )
}

function problem(runId: string, error: unknown): HomeregionError | null {
  if (violated(error) === 'approval_by_another')
    return refused(
      'the one who began a run cannot approve it, unless by breaking the glass (--break-glass --reason TEXT), when nobody else is there',
      `homeregion approve ${runId}   (another login)`,
      error,
    )
  if (violated(error) === 'approval_break_glass')
    return refused('breaking the glass approves, and needs a reason', `homeregion approve ${runId} --break-glass --reason TEXT`, error)
  if (sqlstate(error) !== REFUSAL.notApproved) return null
  const who = error instanceof Error ? error.message : 'the login is not among the approvers'
  return refused(
    `${who} of the control plane's policy, which is policy.approvals as of the last homeregion init (--without the dark region)`,
    `homeregion approve ${runId}   (a login of policy.approvals)`,
    error,
  )
}

async function notOpen(connection: Connection, runId: string, cause: unknown): Promise<HomeregionError> {
  const found = await connection.query('read', 'select state, open from homeregion_control.run where id = $1', [runId])
  const state = found.rows[0]?.state as string | undefined
  const no = found.rows[0]?.open === true ? (await readApprovals(connection, runId)).find(a => a.verdict === 'rejected') : undefined
  if (no !== undefined)
    return refused(
      `run ${runId} was rejected by ${no.approver} at ${no.at}${no.reason === '' ? '' : ` (${no.reason})`}: it will hand nothing over`,
      `homeregion abort ${runId}   (it ends; then homeregion plan failover)`,
      cause,
    )
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

function refused(why: string, next: string, cause: unknown): HomeregionError {
  return new HomeregionError('approval-refused', { fact: why, state: 'Nothing was recorded.', next }, { cause })
}

function approval(row: Row): Approval {
  return {
    runId: row.run_id as string,
    verdict: row.verdict as ApprovalVerdict,
    approver: row.approver as string,
    reason: row.reason as string,
    breakGlass: row.break_glass === true,
    byStarter: row.approver === row.starter,
    at: isoTime(row.at),
  }
}
