import { randomUUID } from 'node:crypto'
import type { Evidence, Json } from '../../domain/evidence.ts'
import { type AttemptEnd, type AttemptStart, type JournalChange, OPEN_STATES, type RunLease } from '../../domain/journal.ts'
import type { OwnershipRecord } from '../../domain/ownership.ts'
import type { Connection, Statement } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { commitRefusal } from './commit-refusal.ts'
import { FORCED_MS_PER_KEY, forcedCommit, KEYS_IN_AUDIT } from './forced-commit.ts'
import { forcedRefusal } from './forced-refusal.ts'
import { allow } from './long-change.ts'
import { type LogEntry, logEntries, moveOwnership, recordActivation } from './ownership-changes.ts'
import { ownershipRecord } from './ownership-records.ts'
import { isTransient, REFUSAL } from './refusals.ts'
import { holdLease, underLease } from './run-lease.ts'
import { storableJson } from './storable-json.ts'

// Measured at 0.05 ms of processor time a key for each of the two; twenty times that before it is given up on.
const MS_PER_KEY = 1

// A deadlock or serialization failure is over by the next try; a third in a row is a fault to report.
const TRIES = 3

/** One change of the journal: one transaction, one round trip. */
export async function commitChange(
  connection: Connection,
  lease: RunLease,
  change: JournalChange,
  { runLeaseMs, callTimeoutMs, keysOfRun }: { readonly runLeaseMs: number; readonly callTimeoutMs: number; readonly keysOfRun: number },
): Promise<readonly OwnershipRecord[]> {
  const activationId = randomUUID()
  const forced = change.forced === undefined ? null : forcedCommit(lease, change.forced)
  const entries = logEntries(lease, change, activationId)
  const { length: taken } = change.forced?.expected ?? []
  const { length: ended } = change.keyOutcomes ?? []
  const released = change.runState === undefined || OPEN_STATES.includes(change.runState) ? 0 : keysOfRun
  const timeoutMs = callTimeoutMs + taken * FORCED_MS_PER_KEY + (ended + released) * MS_PER_KEY
  const before = [
    ...allow(timeoutMs, callTimeoutMs),
    holdLease(lease, runLeaseMs),
    ...(forced?.locks ?? []),
    ...journal(lease, change, activationId, forced?.proofIds ?? new Map()),
    ...(forced?.before ?? []),
  ]
  const moves = [...moveOwnership(lease, entries), ...(forced?.moves ?? [])]
  const after = change.keyOutcomes?.length ? [recordOutcomes(lease, change.keyOutcomes)] : []
  const audit = appendAudit(audited(lease, change, entries, forced?.audited ?? {}))
  const statements = [...before, ...moves, ...after, ...close(lease, change), ...audit]
  for (let tried = 1; ; tried += 1) {
    try {
      // If the process dies before the commit arrives, nothing of this happened; after it, all of it.
      const answers = await underLease(connection, lease, async () => await connection.transaction('write', statements, timeoutMs))
      return answers.slice(before.length, before.length + moves.length).flatMap(a => a.rows.map(ownershipRecord))
    } catch (error) {
      if (isTransient(error) && tried < TRIES) continue
      throw (change.forced === undefined ? null : forcedRefusal(error, change.forced)) ?? commitRefusal(error, entries) ?? error
    }
  }
}

function journal(
  lease: RunLease,
  change: JournalChange,
  activationId: string,
  forcedProofs: ReadonlyMap<string, string>,
): readonly Statement[] {
  const forced = change.forced?.permit.evidence ?? []
  const proofs = change.activation?.permit.evidence ?? []
  // The evidence of a permit is recorded in the transaction that uses it, and once.
  const evidence = [...new Set([...(change.evidence ?? []), ...proofs, ...forced])].map(e => ({
    e,
    id: (forced.includes(e) ? forcedProofs.get(e.check) : undefined) ?? randomUUID(),
  }))
  const proofIds = new Map(evidence.filter(x => proofs.includes(x.e)).map(x => [x.e.check, x.id]))
  return [
    ...(change.starts?.length ? [startAttempts(lease, change.starts)] : []),
    ...(change.ends?.length ? [endAttempts(lease, change.ends)] : []),
    ...(evidence.length > 0 ? [recordEvidence(evidence)] : []),
    ...(change.activation === undefined ? [] : [recordActivation(lease, change.activation, activationId, proofIds)]),
  ]
}

function startAttempts(lease: RunLease, starts: readonly AttemptStart[]): Statement {
  return {
    sql: `insert into homeregion_control.attempt (id, run_id, key, step, action, token)
select s.id, $2, s.key, s.step, s.action, $3 from jsonb_to_recordset($1::jsonb) as s(id text, key text, step text, action text)`,
    parameters: [storableJson(starts), lease.runId, lease.token],
  }
}

/** An outcome is settled once: only `unknown` may be learnt later, and what was done may be undone. */
function endAttempts(lease: RunLease, ends: readonly AttemptEnd[]): Statement {
  return {
    sql: `with asked as (
  select * from jsonb_to_recordset($1::jsonb) as e(id text, outcome text, result jsonb)
), ended as (
  update homeregion_control.attempt a set outcome = e.outcome, ended_at = now(), result = e.result
  from asked e where a.id = e.id and a.run_id = $2
    and (a.outcome is null or a.outcome = 'unknown' or (e.outcome = 'undone' and a.outcome <> 'undone'))
  returning a.id
)
select homeregion_control.require((select count(*) from ended) = $3, '${REFUSAL.attempt}', 'an attempt is missing, or has ended')`,
    parameters: [storableJson(ends), lease.runId, ends.length],
  }
}

function recordEvidence(evidence: readonly { readonly e: Evidence; readonly id: string }[]): Statement {
  const rows = evidence.map(({ e, id }, nth) => ({ ...e, id, nth, facts: e.facts ?? null }))
  return {
    sql: `insert into homeregion_control.evidence
  (id, nth, run_id, key, check_name, verdict, observed, required, observer, facts, step, attempt_id, as_of, as_of_monotonic_ms)
select * from jsonb_to_recordset($1::jsonb) as e(id uuid, nth bigint, "runId" text, key text, "check" text, verdict text, observed text,
  required text, observer text, facts jsonb, step text, "attemptId" text, "asOf" timestamptz, "asOfMonotonicMs" double precision)`,
    parameters: [storableJson(rows)],
  }
}

function recordOutcomes(lease: RunLease, outcomes: NonNullable<JournalChange['keyOutcomes']>): Statement {
  return {
    sql: `update homeregion_control.run_key k set outcome = o.outcome
from jsonb_to_recordset($1::jsonb) as o(key text, outcome text) where k.run_id = $2 and k.key = o.key`,
    parameters: [storableJson(outcomes), lease.runId],
  }
}

/** A run lets go of its keys only when each is ACTIVE somewhere: a key left fenced would belong to nobody who could free it. */
function close(lease: RunLease, change: JournalChange): readonly Statement[] {
  const state = change.runState
  if (state === undefined) return []
  if (state === 'OPEN') return [{ sql: 'update homeregion_control.run set state = $2 where id = $1', parameters: [lease.runId, state] }]
  // A run that waits for a human is free for the one who comes.
  if (OPEN_STATES.includes(state))
    return [{ sql: 'update homeregion_control.run set state = $2, lease_until = now() where id = $1', parameters: [lease.runId, state] }]
  return [
    {
      sql: `select homeregion_control.require(not exists (
  select 1 from homeregion_control.run_key k join homeregion_control.ownership o on o.key = k.key where k.run_id = $1 and k.hold = 'held' and o.state <> 'ACTIVE'
), '${REFUSAL.keyLeftBehind}', 'a key of the run is not ACTIVE')`,
      parameters: [lease.runId],
    },
    {
      sql: `update homeregion_control.run set state = $2, open = false, ended_at = now(), lease_until = null,
  holder_host = null, holder_pid = null, holder_user = null where id = $1`,
      parameters: [lease.runId, state],
    },
  ]
}

function audited(lease: RunLease, change: JournalChange, entries: readonly LogEntry[], forced: { readonly [name: string]: Json }) {
  const named = [...entries, ...(change.starts ?? []), ...(change.keyOutcomes ?? []), ...(change.evidence ?? [])].map(x => x.key)
  const keys = [...new Set(named.filter(k => k !== null))]
  const detail: Json = {
    token: lease.token,
    ...(entries.length > 0 ? { ownership: entries.map(e => ({ ...e })) } : {}),
    ...(change.starts?.length ? { starts: change.starts.map(s => ({ ...s })) } : {}),
    ...(change.ends?.length ? { ends: change.ends.map(e => ({ id: e.id, outcome: e.outcome })) } : {}),
    ...(change.evidence?.length ? { evidence: change.evidence.map(summary) } : {}),
    ...(change.activation ? { permit: change.activation.permit.evidence.map(summary) } : {}),
    ...forced,
    ...(change.forced ? { permit: change.forced.permit.evidence.map(summary) } : {}),
    ...(change.keyOutcomes?.length ? { outcomes: change.keyOutcomes.slice(0, KEYS_IN_AUDIT).map(o => ({ ...o })) } : {}),
    ...(change.runState === undefined ? {} : { runState: change.runState }),
  }
  return { event: eventName(change, entries), runId: lease.runId, key: keys.length === 1 ? (keys[0] ?? null) : null, detail }
}

function eventName(change: JournalChange, entries: readonly LogEntry[]): string {
  if (change.forced !== undefined) return 'forced-failover'
  if (entries.length > 0) return [...new Set(entries.map(e => e.transition))].join('+')
  if (change.runState !== undefined) return `run-${change.runState.toLowerCase().replace('_', '-')}`
  if (change.starts?.length) return 'attempt-started'
  if (change.ends?.length) return 'attempt-ended'
  return change.evidence?.length ? 'evidence' : 'journal'
}

function summary(e: Evidence): Json {
  return {
    check: e.check,
    key: e.key,
    step: e.step,
    attempt: e.attemptId,
    verdict: e.verdict,
    observed: e.observed,
    observer: e.observer,
    asOf: e.asOf,
  }
}
