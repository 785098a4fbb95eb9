import { randomInt } from 'node:crypto'
import { HomeregionError } from '../../domain/errors.ts'
import type { Holder, RunLease } from '../../domain/journal.ts'
import type { Plan } from '../../domain/plan.ts'
import type { Connection, Statement } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { allow } from './long-change.ts'
import { isoTime } from './ownership-records.ts'
import { REFUSAL, sqlstate, violated } from './refusals.ts'
import { requireVersion } from './schema-version.ts'
import { storableJson } from './storable-json.ts'

// Without letters that are mistaken for digits: run ids are read out over the telephone.
const ALPHABET = '23456789abcdefghjkmnpqrstuvwxyz'

// The run has them all; the chain is read by people.
const MOVES_IN_AUDIT = 1_000
// Measured at 0.1 ms a key on a small machine; ten times that before a big run is given up on.
const MS_PER_KEY = 1

/** Opens the run and takes all its keys, or nothing. `seize`: stands in line for those that other runs hold. */
export async function openRun(
  connection: Connection,
  plan: Plan,
  holder: Holder,
  reason: string | null,
  { runLeaseMs, callTimeoutMs }: { readonly runLeaseMs: number; readonly callTimeoutMs: number },
  seize: boolean,
): Promise<RunLease> {
  const runId = `run-${Array.from({ length: 8 }, () => ALPHABET[randomInt(ALPHABET.length)]).join('')}`
  const keys = storableJson(plan.moves)
  const timeoutMs = callTimeoutMs + plan.moves.length * MS_PER_KEY
  const allowed = allow(timeoutMs, callTimeoutMs)
  const statements = [
    ...allowed,
    requireVersion(),
    insertRun(runId, plan, holder, reason, runLeaseMs),
    takeKeys(runId, keys, seize),
    requireNobodyInLine(runId),
    requirePlan(plan, keys, seize),
    drawToken(runId),
    ...opened(runId, plan, holder, reason, seize),
  ]
  try {
    // If the process dies before the commit arrives nothing was taken; after it, the run is open and `resume` finds it.
    const answers = await connection.transaction('write', statements, timeoutMs)
    return { runId, token: Number(answers[allowed.length + 5]?.rows[0]?.token) }
  } catch (error) {
    throw (await refusal(connection, plan, error)) ?? error
  }
}

function insertRun(runId: string, plan: Plan, holder: Holder, reason: string | null, leaseMs: number): Statement {
  const { runbook, text, sha256, origin } = plan.pinned
  return {
    sql: `insert into homeregion_control.run
  (id, plan_id, runbook_name, runbook_text, runbook_sha256, runbook_origin, intent, dropped, reason, state, open, token,
   holder_host, holder_pid, holder_user, lease_until)
values ($1, $2, $3, $4, $5, $6, $7, $8::jsonb, $9, 'OPEN', true, nextval('homeregion_control.run_token'),
   $10, $11, $12, clock_timestamp() + $13::double precision * interval '1 millisecond')`,
    parameters: [
      ...[runId, plan.id, runbook.name, text, sha256, origin, runbook.intent, storableJson(plan.dropped), reason],
      ...[holder.host, holder.pid, holder.user, leaseMs],
    ],
  }
}

/** In key order, so that two runs over the same keys wait for each other instead of deadlocking. */
function takeKeys(runId: string, keys: string, seize: boolean): Statement {
  return {
    sql: `insert into homeregion_control.run_key (run_id, key, source, target, epoch, seq, hold)
select $1, m.key, m.source, m.target, m.epoch, m.seq, case when $3::boolean and exists (
  select 1 from homeregion_control.run_key other where other.key = m.key and other.open and other.hold = 'held'
) then 'seizing' else 'held' end
from jsonb_to_recordset($2::jsonb) as m(key text, source text, target text, epoch bigint, seq bigint) order by m.key`,
    parameters: [runId, keys, seize],
  }
}

/** A run that stands in line for a key may get it any moment, also after the one that holds it has let go. */
function requireNobodyInLine(runId: string): Statement {
  return {
    sql: `select homeregion_control.require(not exists (
  select 1 from homeregion_control.run_key mine join homeregion_control.run_key other on other.key = mine.key
  where mine.run_id = $1 and other.run_id <> $1 and other.open and other.hold = 'seizing'
), '${REFUSAL.inLine}', 'a failover stands in line for one of the keys')`,
    parameters: [runId],
  }
}

/** From here on only this run can change the keys, so what is compared now stays true until the commit. */
function requirePlan(plan: Plan, keys: string, seize: boolean): Statement {
  return {
    sql: `select homeregion_control.require((
  select count(*) from homeregion_control.ownership o
  join jsonb_to_recordset($1::jsonb) as m(key text, source text, epoch bigint, seq bigint) on m.key = o.key
  where o.seq = m.seq and o.epoch = m.epoch and o.home_region = m.source and (o.state = 'ACTIVE' or $3::boolean)
) = $2, '${REFUSAL.planStale}', 'ownership has moved since the plan was made')`,
    parameters: [keys, plan.moves.length, seize],
  }
}

/** Drawn again now that the keys are held: every token of an earlier run on them is smaller. */
function drawToken(runId: string): Statement {
  return {
    sql: `update homeregion_control.run set token = nextval('homeregion_control.run_token') where id = $1 returning token`,
    parameters: [runId],
  }
}

function opened(runId: string, plan: Plan, holder: Holder, reason: string | null, seize: boolean): readonly Statement[] {
  return appendAudit({
    event: 'run-opened',
    runId,
    key: plan.moves.length === 1 ? (plan.moves[0]?.key ?? null) : null,
    detail: {
      plan: plan.id,
      runbook: plan.pinned.runbook.name,
      runbookSha256: plan.pinned.sha256,
      intent: plan.pinned.runbook.intent,
      seize,
      keys: plan.moves.length,
      moves: plan.moves.slice(0, MOVES_IN_AUDIT).map(m => ({ ...m })),
      dropped: plan.dropped.map(d => ({ ...d })),
      holder: { ...holder },
      reason,
    },
  })
}

async function refusal(connection: Connection, plan: Plan, error: unknown): Promise<HomeregionError | null> {
  const busy = ['run_key_one_open', 'run_key_one_seizing'].includes(violated(error) ?? '') || sqlstate(error) === REFUSAL.inLine
  if (busy) return await keyBusy(connection, plan, error)
  if (violated(error) === 'run_key_key_fkey') return unknownKey(plan, error)
  if (sqlstate(error) !== REFUSAL.planStale) return null
  return new HomeregionError(
    'plan-stale',
    { fact: `ownership has moved since plan ${plan.id} was made`, state: 'No run was opened.', next: 'homeregion plan' },
    { cause: error, fields: { planId: plan.id } },
  )
}

async function keyBusy(connection: Connection, plan: Plan, cause: unknown): Promise<HomeregionError> {
  const found = await connection.query(
    'read',
    `select k.key, r.id, r.state, r.started_by, r.started_at, r.holder_host, r.holder_pid, r.holder_user
    from homeregion_control.run_key k join homeregion_control.run r on r.id = k.run_id
    where k.open and k.hold <> 'seized' and k.key in (select key from jsonb_to_recordset($1::jsonb) as m(key text)) order by k.hold desc, k.key limit 1`,
    [storableJson(plan.moves.map(m => ({ key: m.key })))],
  )
  const run = found.rows[0]
  const state = 'No run was opened.'
  if (run === undefined)
    return new HomeregionError(
      'key-busy',
      { fact: 'another run held one of the keys, and has ended since', state, next: 'homeregion plan' },
      { cause, retriable: true },
    )
  const [key, runId, startedAt] = [String(run.key), String(run.id), isoTime(run.started_at)]
  const startedBy = `${String(run.holder_user)}@${String(run.holder_host)} (login ${String(run.started_by)})`
  return new HomeregionError(
    'key-busy',
    {
      fact: `${key} is held by run ${runId} (${String(run.state)}) of ${startedBy} since ${startedAt}`,
      state,
      next: `homeregion run show ${runId}`,
    },
    { cause, fields: { key, runId, startedBy, startedAt, holderPid: Number(run.holder_pid) } },
  )
}

function unknownKey(plan: Plan, cause: unknown): HomeregionError {
  return new HomeregionError(
    'unknown-key',
    { fact: `a key of plan ${plan.id} is not registered`, state: 'No run was opened.', next: 'homeregion key list' },
    { cause },
  )
}
