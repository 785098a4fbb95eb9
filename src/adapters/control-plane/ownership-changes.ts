import { HomeregionError } from '../../domain/errors.ts'
import { isGenuine } from '../../domain/interlock.ts'
import type { Activation, JournalChange, OwnershipChange, RunLease } from '../../domain/journal.ts'
import { epochAfter, type OwnershipRecord, type TransitionName, transition } from '../../domain/ownership.ts'
import type { Statement } from '../postgres/connection.ts'
import { OWNERSHIP_COLUMNS } from './ownership-records.ts'
import { interlockRefused } from './refusals.ts'
import { storableJson } from './storable-json.ts'

/** One row of the log to come, with the row it must follow. Empty text is none. */
export type LogEntry = {
  readonly key: string
  readonly seq: number
  readonly transition: TransitionName
  readonly fromState: string
  readonly fromHome: string
  readonly fromEpoch: number
  readonly fromTarget: string
  readonly fromRun: string
  readonly toState: string
  readonly toHome: string
  readonly toEpoch: number
  readonly toTarget: string
  readonly activationId: string | null
}

export function logEntries(lease: RunLease, change: JournalChange, activationId: string): readonly LogEntry[] {
  const moved = (change.ownership ?? []).map(c => follow(c.transition, c.expected, targetAfter(c), null))
  if (change.activation === undefined) return moved
  const { expected, permit } = genuine(lease, change.activation)
  return [...moved, follow('activate', { ...expected, targetRegion: permit.targetRegion }, '', activationId)]
}

function follow(name: TransitionName, from: OwnershipRecord, toTarget: string, activationId: string | null): LogEntry {
  const { to, home } = transition(name)
  return {
    key: from.key,
    seq: from.seq + 1,
    transition: name,
    fromState: from.state,
    fromHome: from.homeRegion,
    fromEpoch: from.epoch,
    fromTarget: from.targetRegion ?? '',
    fromRun: from.runId ?? '',
    toState: to,
    toHome: home === 'target' ? (from.targetRegion ?? '') : from.homeRegion,
    toEpoch: epochAfter(name, from.epoch),
    toTarget,
    activationId,
  }
}

function targetAfter(change: OwnershipChange): string {
  const { from, to } = transition(change.transition)
  if (to === 'ACTIVE') return ''
  if (from !== 'ACTIVE') return change.expected.targetRegion ?? ''
  if (change.target !== undefined) return change.target
  throw new HomeregionError('unexpected', {
    fact: `${change.transition} of ${change.expected.key} names no target`,
    state: 'Nothing was changed.',
  })
}

/** The permit must be the interlock's own, and for this very change; the database checks the evidence behind it once more. */
function genuine(lease: RunLease, activation: Activation): Activation {
  const { permit, expected } = activation
  if (!isGenuine(permit)) throw interlockRefused('the permit was not made by the interlock', expected.key)
  const same = permit.runId === lease.runId && permit.key === expected.key && permit.epoch === expected.epoch
  if (!same) throw interlockRefused('the permit is for another run, key or epoch', expected.key)
  return activation
}

/**
 * The entries in statements that move each key once, in their order: in one statement a pointer could follow either of two rows of its
 * key.
 */
export function moveOwnership(lease: RunLease, entries: readonly LogEntry[]): readonly Statement[] {
  const rounds: LogEntry[][] = []
  for (const [i, entry] of entries.entries()) {
    const before = entries.slice(0, i).filter(e => e.key === entry.key).length
    rounds[before] = [...(rounds[before] ?? []), entry]
  }
  return rounds.map(round => moveOnce(lease, round))
}

/**
 * The compare-and-swap. The log's primary key and its foreign key to the expected predecessor let one writer through; then the
 * pointer follows in the same statement.
 */
function moveOnce(lease: RunLease, entries: readonly LogEntry[]): Statement {
  return {
    sql: `with change as (
  select * from jsonb_to_recordset($1::jsonb) as c("key" text, "seq" bigint, "transition" text, "fromState" text, "fromHome" text,
    "fromEpoch" bigint, "fromTarget" text, "fromRun" text, "toState" text, "toHome" text, "toEpoch" bigint, "toTarget" text,
    "activationId" uuid)
), logged as (
  insert into homeregion_control.ownership_log (key, seq, transition, prev_seq, from_state, from_home, from_epoch, from_target, from_run,
    to_state, to_home, to_epoch, to_target, run_id, token, activation_id)
  select "key", "seq", "transition", "seq" - 1, "fromState", "fromHome", "fromEpoch", "fromTarget", "fromRun",
    "toState", "toHome", "toEpoch", "toTarget", $2, $3, "activationId" from change order by "key"
  returning key, seq, to_state, to_home, to_epoch, to_target, run_id, at, actor
)
update homeregion_control.ownership o set seq = l.seq, state = l.to_state, home_region = l.to_home, epoch = l.to_epoch,
  target_region = l.to_target, run_id = l.run_id, changed_at = l.at, changed_by = l.actor
from logged l where o.key = l.key
returning ${OWNERSHIP_COLUMNS}`,
    parameters: [storableJson(entries), lease.runId, lease.token],
  }
}

/** Ids the permit's evidence is recorded under. */
export type ProofIds = ReadonlyMap<string, string>

export function recordActivation(lease: RunLease, activation: Activation, activationId: string, proofs: ProofIds): Statement {
  const { permit, expected } = activation
  const proof = (check: string) => proofs.get(check) ?? null
  return {
    sql: `insert into homeregion_control.activation (id, run_id, key, source, target, epoch, attempt_id, token,
  fence_evidence_id, barrier_evidence_id, versions_evidence_id, idempotency_evidence_id,
  policy_id, needs_barrier, needs_versions, needs_idempotency)
select $1::uuid, $2::text, $3::text, $4::text, $5::text, $6::bigint, $7::text, $8::bigint, $9::uuid, $10::uuid, $11::uuid, $12::uuid,
  p.id, p.needs_barrier, p.needs_versions, p.needs_idempotency
from homeregion_control.interlock_policy p where p.in_force`,
    parameters: [
      ...[activationId, lease.runId, permit.key, expected.homeRegion, permit.targetRegion, permit.epoch, permit.attemptId, lease.token],
      ...[proof('fence-holds'), proof('barrier-applied'), proof('versions-equal'), proof('idempotency-carried')],
    ],
  }
}
