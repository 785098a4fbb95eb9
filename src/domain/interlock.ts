import type { CheckName } from './checks.ts'
import { checkSpec } from './checks.ts'
import type { Evidence } from './evidence.ts'
import type { OwnershipRecord } from './ownership.ts'

/** What must have been seen before a key may be activated. */
export type InterlockPolicy = {
  /** Each of these must have passed, for this run, key and attempt. Never empty. */
  readonly required: readonly CheckName[]
  readonly evidenceMaxAgeMs: number
}

export type ActivationRequest = {
  readonly runId: string
  readonly key: string
  readonly targetRegion: string
  /** Epoch of the ownership being handed over. */
  readonly epoch: number
  readonly attemptId: string
  /** The engine's monotonic clock, now. */
  readonly nowMonotonicMs: number
}

const minted = new WeakSet<ActivationPermit>()

/** Only `decideActivation` can make one that `isGenuine`; the activation action demands it. */
export type ActivationPermit = {
  readonly kind: 'activation-permit'
  readonly runId: string
  readonly key: string
  readonly targetRegion: string
  readonly epoch: number
  readonly attemptId: string
  /** The evidence it was minted on, one per required check, in the order of the policy. */
  readonly evidence: readonly Evidence[]
}

export type Decision =
  | { readonly permit: ActivationPermit; readonly refusals: readonly [] }
  | { readonly permit: null; readonly refusals: readonly string[] }

/**
 * Reasons why the key may not be activated; empty means it may. Pure: the same record, evidence and policy give the same answer.
 * Evidence of another run, key or attempt is foreign, and counts as absent.
 */
export function mayActivate(
  record: OwnershipRecord,
  evidence: readonly Evidence[],
  policy: InterlockPolicy,
  request: ActivationRequest,
): readonly string[] {
  const refusals: string[] = []
  const refuse = (when: boolean, why: string) => {
    if (when) refusals.push(why)
  }
  refuse(record.key !== request.key, `the ownership record is of another key`)
  refuse(record.state !== 'CATCH_UP', `the key is ${record.state}, not CATCH_UP`)
  refuse(record.epoch !== request.epoch, `the epoch is ${record.epoch}, the run expects ${request.epoch}`)
  refuse(record.runId !== request.runId, `the key was last changed by another run`)
  refuse(
    record.targetRegion !== request.targetRegion,
    `the key is being moved to ${record.targetRegion ?? 'nowhere'}, not to ${request.targetRegion}`,
  )
  refuse(record.homeRegion === request.targetRegion, `${request.targetRegion} is the home region already`)
  refuse(!policy.required.some(name => checkSpec(name).proves === 'fence'), 'the policy requires no proof of the fence')
  for (const name of policy.required) {
    const seen = newest(name, evidence, request)
    if (seen === undefined) refusals.push(`${name}: no evidence for this attempt`)
    else if (seen.verdict !== 'pass') refusals.push(`${name}: ${seen.verdict} (observed ${seen.observed}; required ${seen.required})`)
    else if (!(ageMs(seen, request) >= 0 && ageMs(seen, request) <= policy.evidenceMaxAgeMs))
      refusals.push(`${name}: evidence is ${Math.round(ageMs(seen, request))} ms old, the limit is ${policy.evidenceMaxAgeMs} ms`)
  }
  return refusals
}

export function decideActivation(
  record: OwnershipRecord,
  evidence: readonly Evidence[],
  policy: InterlockPolicy,
  request: ActivationRequest,
): Decision {
  const refusals = mayActivate(record, evidence, policy, request)
  if (refusals.length > 0) return { permit: null, refusals }
  const used = policy.required.map(name => newest(name, evidence, request)).filter(e => e !== undefined)
  const permit: ActivationPermit = Object.freeze({
    kind: 'activation-permit',
    runId: request.runId,
    key: request.key,
    targetRegion: request.targetRegion,
    epoch: request.epoch,
    attemptId: request.attemptId,
    evidence: used,
  })
  minted.add(permit)
  return { permit, refusals: [] }
}

/** False for anything that `decideActivation` did not make, a copy included. */
export function isGenuine(permit: ActivationPermit): boolean {
  return minted.has(permit)
}

function newest(name: CheckName, evidence: readonly Evidence[], request: ActivationRequest): Evidence | undefined {
  return evidence
    .filter(e => e.check === name && e.runId === request.runId && e.key === request.key && e.attemptId === request.attemptId)
    .reduce<Evidence | undefined>((best, e) => (best === undefined || e.asOfMonotonicMs >= best.asOfMonotonicMs ? e : best), undefined)
}

function ageMs(evidence: Evidence, request: ActivationRequest): number {
  return request.nowMonotonicMs - evidence.asOfMonotonicMs
}
