import { randomUUID } from 'node:crypto'
import type { Json } from '../../domain/evidence.ts'
import { isGenuineForced } from '../../domain/forced-interlock.ts'
import type { ForcedChange, RunLease } from '../../domain/journal.ts'
import { acknowledgementProblem, hashOfKeys, type RegionObservation } from '../../domain/loss.ts'
import type { Statement } from '../postgres/connection.ts'
import { boundColumn } from './ack-tokens.ts'
import { exileSource } from './exiles.ts'
import { forceOwnership } from './forced-ownership.ts'
import { forcedInterlockRefused, lossNotAcknowledged } from './forced-refusal.ts'
import { lockSeized, seizeKeys } from './seizure.ts'
import { storableJson } from './storable-json.ts'

// Measured at 0.3 ms of processor time a key on a small machine; a busy one has taken ten times that, and it is not given up on then.
export const FORCED_MS_PER_KEY = 5
/** The tables have them all; the chain is read by people. */
export const KEYS_IN_AUDIT = 1_000

/**
 * A session remembers how it checks foreign keys from when the tables were small, and would read them whole for each of ten thousand rows.
 * Another search path makes it plan anew; every name here is qualified.
 */
const FRESH_PLANS: Statement = { sql: 'set local search_path to homeregion_control' }

/** The statements of a forced failover, in the places of the one transaction that they belong to. */
type ForcedCommit = {
  readonly locks: readonly Statement[]
  readonly before: readonly Statement[]
  readonly moves: readonly Statement[]
  /** Ids the permit's evidence is recorded under, by check. */
  readonly proofIds: ReadonlyMap<string, string>
  readonly audited: { readonly [name: string]: Json }
}

/** @throws `interlock-refused`, `loss-not-acknowledged` before anything is sent */
export function forcedCommit(lease: RunLease, change: ForcedChange): ForcedCommit {
  requireGenuine(lease, change)
  const { permit, expected, estimate } = change
  const id = randomUUID()
  const proofIds = new Map(permit.evidence.map(e => [e.check, randomUUID()] as const))
  const keys = expected.map(r => r.key)
  return {
    locks: [FRESH_PLANS, lockSeized(lease, keys)],
    before: [
      ...own(id, lease, change, proofIds),
      recordKeys(id, lease, change),
      ...exileSource(id, permit.source, lease.runId),
      ...seizeKeys(id, lease),
    ],
    moves: [forceOwnership(id, lease, expected.length)],
    proofIds,
    audited: {
      forced: {
        ...{ id, source: permit.source, target: permit.target, fence: permit.fence, attempt: permit.attemptId },
        acknowledgement: { kind: change.acknowledgement.kind, bound: boundOf(change) },
        ...{ estimateSha256: estimate.sha256, recoverable: estimate.totals.recoverable, unknown: { ...estimate.totals.unknown } },
        blocked: estimate.blocked.slice(0, KEYS_IN_AUDIT).map(b => b.key),
        ...{ keys: keys.length, keysSha256: hashOfKeys(keys) },
        moved: expected.slice(0, KEYS_IN_AUDIT).map(r => ({ key: r.key, epoch: r.epoch, state: r.state, seq: r.seq, run: r.runId })),
      },
    },
  }
}

/** A permit speaks for one run, one estimate and the keys it was minted for, and a copy of it for none. */
function requireGenuine(lease: RunLease, { permit, expected, estimate, acknowledgement }: ForcedChange): void {
  if (!isGenuineForced(permit)) throw forcedInterlockRefused('the permit was not made by the interlock')
  if (permit.runId !== lease.runId) throw forcedInterlockRefused(`the permit is for run ${permit.runId}`)
  if (permit.estimateSha256 !== estimate.sha256) throw forcedInterlockRefused('the permit is for another estimate')
  const permitted = new Map(permit.keys.map(k => [k.key, k]))
  const same = expected.every(r => permitted.get(r.key)?.epoch === r.epoch && permitted.get(r.key)?.seq === r.seq)
  if (!same || permitted.size !== expected.length) throw forcedInterlockRefused('the permit is for other keys')
  const problem = acknowledgementProblem(acknowledgement, estimate)
  if (problem !== null) throw lossNotAcknowledged(problem)
}

function boundOf({ acknowledgement }: ForcedChange): number | 'any' {
  return acknowledgement.kind === 'any' ? 'any' : acknowledgement.boundMs
}

/** The acknowledgement, and the failover that stands on it. What a token was issued for is read where it was issued, not taken from the caller. */
function own(id: string, lease: RunLease, change: ForcedChange, proofs: ReadonlyMap<string, string>): readonly Statement[] {
  const { permit, expected, estimate, acknowledgement } = change
  const acknowledgementId = randomUUID()
  const bound = boundColumn(boundOf(change))
  const keysSha256 = hashOfKeys(expected.map(r => r.key))
  const proof = (check: string) => proofs.get(check) ?? null
  return [
    {
      sql: `insert into homeregion_control.acknowledgement (id, run_id, plan_id, kind, bound_ms, keys_sha256, token_hash, token_expires_at, token_used_at)
select $1::uuid, r.id, r.plan_id, $3, $4, $5, $6::text, t.expires_at, t.at
from homeregion_control.run r left join homeregion_control.redeemed_token t on t.hash = $6::text and t.run_id = r.id where r.id = $2`,
      parameters: [
        ...[acknowledgementId, lease.runId, acknowledgement.kind, bound, keysSha256],
        acknowledgement.kind === 'token' ? acknowledgement.hash : null,
      ],
    },
    {
      sql: `insert into homeregion_control.forced_failover (id, run_id, source, target, keys, attempt_id, token, dark_evidence_id, fence_check,
  fence_evidence_id, loss_evidence_id, target_evidence_id, approved_evidence_id, approval_policy_id, above_keys, acknowledgement_id, bound_ms,
  keys_sha256, estimate_sha256, estimate, ahead_evidence_id)
select $1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::text, $7::bigint, $8::uuid, $9::text, $10::uuid, $11::uuid, $12::uuid, $13::uuid,
  p.id, p.above_keys, $14::uuid, $15::bigint, $16::text, $17::text, $18::jsonb, $19::uuid
from homeregion_control.approval_policy p where p.in_force`,
      parameters: [
        ...[id, lease.runId, permit.source, permit.target, expected.length, permit.attemptId, lease.token],
        ...[proof('source-dark'), permit.fence, proof(permit.fence), proof('loss-acknowledged'), proof('target-can-write')],
        ...[proof('approved'), acknowledgementId, bound, keysSha256, estimate.sha256, storableJson(shown(change))],
        proof('no-region-ahead'),
      ],
    },
  ]
}

/** What was known when it was done, without the keys, which have rows of their own. */
function shown({ estimate }: ForcedChange): Json {
  const { observation, sights, stoppedAgeMs, totals, blocked } = estimate
  return {
    observation: observation === null ? null : { ...observation, notApplied: shownLags(observation) },
    sights: sights.map(s => ({ ...s })),
    ...{ stoppedAgeMs, totals: { ...totals, unknown: { ...totals.unknown } }, blocked: blocked.length },
  }
}

function shownLags({ notApplied }: RegionObservation): Json {
  return Object.fromEntries(Object.entries(notApplied).map(([region, lag]) => [region, { ...lag }]))
}

/** Keys come from the control plane itself, so their text is storable as it is. */
function recordKeys(id: string, lease: RunLease, { permit, expected, estimate, acknowledgement }: ForcedChange): Statement {
  const estimated = new Map(estimate.keys.map(k => [k.key, k]))
  const bound = boundColumn(acknowledgement.kind === 'any' ? 'any' : acknowledgement.boundMs)
  const rows = expected.map((record, index) => {
    const own = estimated.get(record.key)
    const rpo = own?.rpo ?? 'never'
    // Written out: ten thousand spreads take as long as the rest.
    return {
      nth: index + 1,
      key: record.key,
      epoch: record.epoch,
      seq: record.seq,
      rpo: typeof rpo === 'string' ? rpo : 'at-most',
      rpoMs: typeof rpo === 'string' ? null : rpo.atMostMs,
      unknownMs: own?.unknown.ms ?? null,
      unknownWrites: own?.unknown.writes ?? null,
      recoverable: own?.recoverable ?? 0,
      version: own?.lastApplied?.version ?? null,
      ageMs: own?.lastApplied?.ageMs ?? null,
    }
  })
  return {
    sql: `insert into homeregion_control.forced_activation (forced_id, nth, run_id, key, source, target, epoch, from_seq, keys, bound_ms, rpo, rpo_ms,
  unknown_ms, unknown_writes, recoverable, applied_version, applied_age_ms)
select $1::uuid, k.nth, $2::text, k.key, $3::text, $4::text, k.epoch, k.seq, $5::bigint, $6::bigint, k.rpo, k."rpoMs", k."unknownMs", k."unknownWrites",
  k.recoverable, k.version, k."ageMs"
from jsonb_to_recordset($7::jsonb) as k(nth bigint, key text, epoch bigint, seq bigint, rpo text, "rpoMs" bigint, "unknownMs" double precision,
  "unknownWrites" double precision, recoverable bigint, version bigint, "ageMs" double precision)
order by k.key`,
    parameters: [id, lease.runId, permit.source, permit.target, expected.length, bound, JSON.stringify(rows)],
  }
}
