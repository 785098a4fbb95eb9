import { randomUUID } from 'node:crypto'
import { createControlPlane } from '../../src/adapters/control-plane/control-plane-store.ts'
import { installControlPlane } from '../../src/adapters/control-plane/install.ts'
import type { CheckName, OutsideFence } from '../../src/domain/checks.ts'
import type { Config } from '../../src/domain/config.ts'
import type { Evidence } from '../../src/domain/evidence.ts'
import { decideForcedActivation, type ForcedPermit } from '../../src/domain/forced-interlock.ts'
import type { ForcedChange, RunLease } from '../../src/domain/journal.ts'
import { type Acknowledgement, estimateLoss, type LossEstimate } from '../../src/domain/loss.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { Plan } from '../../src/domain/plan.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { evidenceFor, type Fixture, planFor, startFixture } from './control-plane-fixture.ts'

export const BOB = 'bob_approves'
export const EVE = 'eve_does_not'
const PASSWORD = 'approver-of-a-throwaway-cluster'
const LOSS: Config['policy']['loss'] = [
  { keys: 'ledger-*', rpo: 'never' },
  { keys: 'any-*', rpo: 'any' },
  { keys: '*', rpo: { atMostMs: 60_000 } },
]

export type ForcedFixture = Fixture & {
  /** A store with another login of the operators. */
  as(role: string): ControlPlane
}

/** A control plane with approvers: bob is listed, eve is not; the fixture's own operator begins the runs. */
export async function startForcedFixture(aboveKeys = 100_000): Promise<ForcedFixture> {
  const fixture = await startFixture()
  const config: Config = {
    ...fixture.config,
    policy: { ...fixture.config.policy, loss: LOSS, approvals: { approvers: [BOB], needed: 1, aboveKeys } },
  }
  await installControlPlane({ config, secrets: fixture.secrets, dryRun: false })
  const admin = await fixture.raw('admin')
  for (const role of [BOB, EVE]) {
    await admin.query(`create role ${role} login password '${PASSWORD}' in role homeregion_operator`)
  }
  const closing: ControlPlane[] = []
  return {
    ...fixture,
    config,
    as: role => {
      const url = config.controlPlane.operator.url.replace('homeregion_operator', role)
      const operator = { url, password: { env: 'APPROVER' } }
      const store = createControlPlane(
        { ...config, controlPlane: { ...config.controlPlane, operator } },
        { ...fixture.secrets, read: () => Promise.resolve(PASSWORD) },
      )
      closing.push(store)
      return store
    },
    stop: async () => {
      await Promise.allSettled(closing.map(async store => await store.close()))
      await fixture.stop()
    },
  }
}

export function failoverPlan(records: readonly OwnershipRecord[], target = 'region-b'): Plan {
  const plan = planFor(records, target)
  return { ...plan, pinned: { ...plan.pinned, runbook: { ...plan.pinned.runbook, name: 'failover', intent: 'failover' } } }
}

/** 0.4 s behind at a look that is 10 s old, at most 5 writes a second. */
export function estimateOf(records: readonly OwnershipRecord[], target = 'region-b', source = 'region-a'): LossEstimate {
  return estimateLoss({
    ...{ source, target, keys: records.map(r => ({ key: r.key, epoch: r.epoch })), sights: [], stoppedAgeMs: null, loss: LOSS },
    observations: [
      {
        ...{ region: source, observer: 'agent-b', ageMs: 10_000, unpublished: 2, oldestUnpublishedMs: 400, highestPerSecond: 5 },
        notApplied: { [target]: { events: 1, oldestMs: 300 } },
      },
    ],
    lastApplied: new Map(records.map(r => [r.key, { version: 7, ageMs: 11_000 }])),
    recoverable: new Map(records.slice(0, 1).map(r => [r.key, 3])),
  })
}

export function forcedEvidence(lease: RunLease, attemptId: string, check: CheckName, estimate: LossEstimate): Evidence {
  return {
    ...evidenceFor(lease, '', attemptId, check),
    key: null,
    ...(check === 'loss-acknowledged' ? { facts: { estimateSha256: estimate.sha256 } } : {}),
  }
}

export function forcedPermit(
  lease: RunLease,
  records: readonly OwnershipRecord[],
  estimate: LossEstimate,
  attemptId: string,
  options: { fence?: OutsideFence; approved?: boolean; aboveKeys?: number } = {},
): ForcedPermit {
  const { fence = 'external-fence-holds', approved = false, aboveKeys = 100_000 } = options
  const checks: CheckName[] = [
    'source-dark',
    'no-region-ahead',
    'loss-acknowledged',
    'target-can-write',
    fence,
    ...(approved ? (['approved'] as const) : []),
  ]
  const decision = decideForcedActivation(
    records,
    checks.map(check => forcedEvidence(lease, attemptId, check, estimate)),
    { evidenceMaxAgeMs: 60_000, loss: LOSS, approvals: { aboveKeys } },
    {
      ...{ runId: lease.runId, intent: 'failover', source: estimate.source, target: estimate.target, attemptId, estimate },
      ...{ automatic: false, nowMonotonicMs: performance.now() },
    },
  )
  if (decision.permit === null) throw new Error(decision.refusals.join('; '))
  return decision.permit
}

export async function startAttempt(store: ControlPlane, lease: RunLease): Promise<string> {
  const id = randomUUID()
  await store.commit(lease, { starts: [{ id, key: null, step: 'activate', action: 'activate' }] })
  return id
}

export const ACK: Acknowledgement = { kind: 'bound', boundMs: 30_000 }

/** All that a forced commit needs, on evidence of an attempt that was started. */
export async function forcedChange(
  store: ControlPlane,
  lease: RunLease,
  records: readonly OwnershipRecord[],
  options: Parameters<typeof forcedPermit>[4] & { target?: string; source?: string; acknowledgement?: Acknowledgement } = {},
): Promise<ForcedChange> {
  const estimate = estimateOf(records, options.target, options.source)
  const attempt = await startAttempt(store, lease)
  const permit = forcedPermit(lease, records, estimate, attempt, options)
  return { expected: records, permit, estimate, acknowledgement: options.acknowledgement ?? ACK }
}
