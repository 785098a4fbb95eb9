import { type CheckName, checkSpec, OUTSIDE_FENCES, type OutsideFence } from './checks.ts'
import type { Config } from './config.ts'
import type { Evidence } from './evidence.ts'
import { showKey } from './key.ts'
import { type LossEstimate, rpoOf } from './loss.ts'
import type { OwnershipRecord } from './ownership.ts'
import type { Intent } from './runbook.ts'

/** What the configuration demands of a forced failover. */
export type ForcedPolicy = {
  readonly evidenceMaxAgeMs: number
  readonly loss: Config['policy']['loss']
  readonly approvals: Pick<Config['policy']['approvals'], 'aboveKeys'>
}

export type ForcedRequest = {
  readonly runId: string
  readonly intent: Intent
  readonly source: string
  readonly target: string
  /** The attempt of the run as a whole that the evidence was gathered for. */
  readonly attemptId: string
  /** What is about to be lost; the keys that move are in it, and none of them is blocked. */
  readonly estimate: LossEstimate
  /** True when no person stands behind it: then a person's word is no fence. */
  readonly automatic: boolean
  /** The engine's monotonic clock, now. */
  readonly nowMonotonicMs: number
}

/** Only `decideForcedActivation` can make one that `isGenuineForced`; the one commit of a forced failover demands it. */
export type ForcedPermit = {
  readonly kind: 'forced-permit'
  readonly runId: string
  readonly source: string
  readonly target: string
  readonly attemptId: string
  /** What the source is fenced by. */
  readonly fence: OutsideFence
  readonly keys: readonly { readonly key: string; readonly epoch: number; readonly seq: number }[]
  readonly estimateSha256: string
  /** One for each proof; `approved` only where it was given. All of the run as a whole. */
  readonly evidence: readonly Evidence[]
}

export type ForcedDecision =
  | { readonly permit: ForcedPermit; readonly refusals: readonly [] }
  | { readonly permit: null; readonly refusals: readonly string[] }

const minted = new WeakSet<ForcedPermit>()

/** Needed whatever else holds. */
const ALWAYS = ['source-dark', 'no-region-ahead', 'loss-acknowledged', 'target-can-write'] as const satisfies readonly CheckName[]

/** Whether somebody beside the initiator has to agree: always to a person's word, and above a number of keys. */
export function approvalNeeded(fence: OutsideFence, keys: number, approvals: ForcedPolicy['approvals']): boolean {
  return fence === 'source-attested' || keys > approvals.aboveKeys
}

/**
 * Hands all keys of a forced failover over at once, or says why not. Pure but for the minting. Evidence of another run or attempt is
 * foreign, and counts as absent; so does evidence of a single key.
 */
export function decideForcedActivation(
  records: readonly OwnershipRecord[],
  evidence: readonly Evidence[],
  policy: ForcedPolicy,
  request: ForcedRequest,
): ForcedDecision {
  const seen = newestOf(evidence, request)
  const problemOf = (check: CheckName): readonly string[] => {
    const why = problem(seen.get(check), check, policy, request)
    return why === null ? [] : [why]
  }
  const usable = (check: CheckName) => problemOf(check).length === 0
  const fences = OUTSIDE_FENCES.filter(usable)
  const [fence] = fences
  const needsApproval = fence === undefined || approvalNeeded(fence, records.length, policy.approvals)
  const refusals = [
    ...ofRequest(records, request),
    ...ALWAYS.flatMap(problemOf),
    ...ofFences(fences, seen, policy, request),
    // A rejection counts although nobody was asked for an approval.
    ...(needsApproval || seen.get('approved')?.verdict === 'fail' ? problemOf('approved') : []),
    ...ofEstimate(seen.get('loss-acknowledged'), request),
    ...ofRecords(records, policy, request),
  ]
  if (refusals.length > 0 || fence === undefined) return { permit: null, refusals }
  const used: readonly CheckName[] = [...ALWAYS, fence, ...(usable('approved') ? (['approved'] as const) : [])]
  const permit: ForcedPermit = Object.freeze({
    kind: 'forced-permit',
    ...{ runId: request.runId, source: request.source, target: request.target, attemptId: request.attemptId, fence },
    keys: records.map(({ key, epoch, seq }) => ({ key, epoch, seq })),
    estimateSha256: request.estimate.sha256,
    evidence: used.map(check => seen.get(check)).filter(e => e !== undefined),
  })
  minted.add(permit)
  return { permit, refusals: [] }
}

/** False for anything that `decideForcedActivation` did not make, a copy included. */
export function isGenuineForced(permit: ForcedPermit): boolean {
  return minted.has(permit)
}

function ofRequest(records: readonly OwnershipRecord[], request: ForcedRequest): readonly string[] {
  const { estimate, source, target } = request
  return [
    ...(request.intent === 'failover' ? [] : [`the run's intent is ${request.intent}: it may lose nothing`]),
    ...(records.length === 0 ? ['there is no key to hand over'] : []),
    ...(source === target ? [`${target} is the source`] : []),
    ...(estimate.source === source && estimate.target === target ? [] : ['the estimate is of other regions']),
  ]
}

function ofFences(
  fences: readonly OutsideFence[],
  seen: ReadonlyMap<CheckName, Evidence>,
  policy: ForcedPolicy,
  request: ForcedRequest,
): readonly string[] {
  if (fences.length > 1) return [`two fences from outside hold (${fences.join(', ')}): the record has to say which one is meant`]
  if (fences[0] === 'source-attested' && request.automatic)
    return ["source-attested: no person stands behind this run, and a person's word is needed"]
  if (fences.length === 1) return []
  const tried = OUTSIDE_FENCES.filter(check => seen.has(check)).flatMap(check => problem(seen.get(check), check, policy, request) ?? [])
  return tried.length > 0 ? tried : [`no fence from outside holds (${OUTSIDE_FENCES.join(', ')}): no evidence for this attempt`]
}

/** Owning another loss than the one at hand is owning nothing. */
function ofEstimate(acknowledged: Evidence | undefined, request: ForcedRequest): readonly string[] {
  if (acknowledged === undefined || acknowledged.facts?.estimateSha256 === request.estimate.sha256) return []
  return ['loss-acknowledged: it is of another estimate']
}

function ofRecords(records: readonly OwnershipRecord[], policy: ForcedPolicy, request: ForcedRequest): readonly string[] {
  const estimated = new Map(request.estimate.keys.map(k => [k.key, k]))
  const blocked = new Map(request.estimate.blocked.map(b => [b.key, b]))
  const taken = new Set<string>()
  return records.flatMap(record => {
    const key = showKey(record.key)
    const twice = taken.has(record.key)
    taken.add(record.key)
    const own = estimated.get(record.key)
    return [
      ...(twice ? [`${key} is named twice`] : []),
      ...(record.homeRegion === request.source ? [] : [`${key} is at home in ${record.homeRegion}, not in ${request.source}`]),
      ...(own === undefined ? [`${key} is not in the estimate`] : []),
      ...(own !== undefined && own.epoch !== record.epoch ? [`${key}: the epoch is ${record.epoch}, the estimate is of ${own.epoch}`] : []),
      ...(rpoOf(record.key, policy.loss) === 'never' ? [`${key}: its policy is never`] : []),
      ...(blocked.has(record.key) && rpoOf(record.key, policy.loss) !== 'never'
        ? [`${key}: the policy forbids to lose so much of it`]
        : []),
    ]
  })
}

function problem(seen: Evidence | undefined, check: CheckName, policy: ForcedPolicy, request: ForcedRequest): string | null {
  if (seen === undefined) return `${check}: no evidence for this attempt`
  if (seen.verdict !== 'pass') return `${check}: ${seen.verdict} (observed ${seen.observed}; required ${seen.required})`
  const ageMs = request.nowMonotonicMs - seen.asOfMonotonicMs
  // Not `ageMs > limit`: an age that cannot be told is no age.
  if (ageMs >= 0 && ageMs <= policy.evidenceMaxAgeMs) return null
  return `${check}: evidence is ${Math.round(ageMs)} ms old, the limit is ${policy.evidenceMaxAgeMs} ms`
}

/** The newest of each check, so that a pass cannot outlive a later fail. */
function newestOf(evidence: readonly Evidence[], request: ForcedRequest): ReadonlyMap<CheckName, Evidence> {
  const newest = new Map<CheckName, Evidence>()
  for (const e of evidence) {
    if (e.runId !== request.runId || e.attemptId !== request.attemptId || e.key !== null || checkSpec(e.check).scope !== 'run') continue
    const best = newest.get(e.check)
    // Evidence whose time cannot be told goes last, so that it cannot hide behind another.
    if (best === undefined || !(e.asOfMonotonicMs < best.asOfMonotonicMs)) newest.set(e.check, e)
  }
  return newest
}
