import type { CheckName } from '../../domain/checks.ts'
import type { Evidence, Json, Verdict } from '../../domain/evidence.ts'
import type { Attempt, AttemptOutcome, Run, RunState } from '../../domain/journal.ts'
import type { Intent } from '../../domain/runbook.ts'
import type { Connection, Row } from '../postgres/connection.ts'
import { isoTime } from './ownership-records.ts'

const RUN = `select r.*, (r.open and coalesce(r.lease_until > clock_timestamp(), false)) as lease_alive,
  coalesce((extract(epoch from (coalesce(r.lease_until, r.ended_at) - clock_timestamp())) * 1000)::bigint, 0) as lease_left_ms,
  (select coalesce(jsonb_agg(jsonb_build_object('key', k.key, 'source', k.source, 'target', k.target, 'epoch', k.epoch, 'seq', k.seq,
    'outcome', k.outcome) order by k.key), '[]'::jsonb) from homeregion_control.run_key k where k.run_id = r.id) as moves
from homeregion_control.run r`

export async function findRun(connection: Connection, runId: string): Promise<Run | null> {
  const found = await connection.query('read', `${RUN} where r.id = $1`, [runId])
  return found.rows[0] === undefined ? null : run(found.rows[0])
}

/** Newest first. */
export async function listRuns(
  connection: Connection,
  filter: { states?: readonly RunState[]; key?: string; reasonBegins?: string; limit: number },
): Promise<readonly Run[]> {
  const found = await connection.query(
    'read',
    `${RUN} where ($1::text[] is null or r.state = any($1))
      and ($2::text is null or r.id in (select k.run_id from homeregion_control.run_key k where k.key = $2))
      and ($4::text is null or starts_with(r.reason, $4))
    order by r.started_at desc, r.id limit $3`,
    [filter.states ?? null, filter.key ?? null, filter.limit, filter.reasonBegins ?? null],
  )
  return found.rows.map(run)
}

/** Oldest first. */
export async function readAttempts(connection: Connection, runId: string): Promise<readonly Attempt[]> {
  const found = await connection.query(
    'read',
    'select * from homeregion_control.attempt where run_id = $1 order by started_at, token, id',
    [runId],
  )
  return found.rows.map(row => ({
    id: row.id as string,
    runId: row.run_id as string,
    key: row.key as string | null,
    step: row.step as string,
    action: row.action as string,
    token: Number(row.token),
    startedAt: isoTime(row.started_at),
    outcome: row.outcome as AttemptOutcome | null,
    endedAt: row.ended_at === null ? null : isoTime(row.ended_at),
    result: row.result as Json,
  }))
}

/** In the order it was recorded. */
export async function readEvidence(
  connection: Connection,
  runId: string,
): Promise<readonly (Evidence & { readonly recordedAt: string })[]> {
  const found = await connection.query('read', 'select * from homeregion_control.evidence where run_id = $1 order by recorded_at, nth', [
    runId,
  ])
  return found.rows.map(row => ({
    check: row.check_name as CheckName,
    verdict: row.verdict as Verdict,
    observed: row.observed as string,
    required: row.required as string,
    observer: row.observer as string,
    ...(row.facts === null ? {} : { facts: row.facts as { readonly [name: string]: Json } }),
    runId: row.run_id as string,
    key: row.key as string | null,
    step: row.step as string,
    attemptId: row.attempt_id as string | null,
    asOf: isoTime(row.as_of),
    asOfMonotonicMs: Number(row.as_of_monotonic_ms),
    recordedAt: isoTime(row.recorded_at),
  }))
}

function run(row: Row): Run {
  const holder =
    row.holder_host === null ? null : { host: row.holder_host as string, pid: Number(row.holder_pid), user: row.holder_user as string }
  return {
    id: row.id as string,
    planId: row.plan_id as string,
    runbookName: row.runbook_name as string,
    runbookText: row.runbook_text as string,
    runbookSha256: row.runbook_sha256 as string,
    intent: row.intent as Intent,
    moves: row.moves as Run['moves'],
    state: row.state as RunState,
    token: Number(row.token),
    holder,
    leaseAlive: row.lease_alive === true,
    leaseLeftMs: Number(row.lease_left_ms),
    startedAt: isoTime(row.started_at),
    endedAt: row.ended_at === null ? null : isoTime(row.ended_at),
    startedBy: row.started_by as string,
    reason: row.reason as string | null,
  }
}
