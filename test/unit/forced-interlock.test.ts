import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type CheckName, OUTSIDE_FENCES } from '../../src/domain/checks.ts'
import type { Evidence, Verdict } from '../../src/domain/evidence.ts'
import { decideForcedActivation, type ForcedPolicy, type ForcedRequest, isGenuineForced } from '../../src/domain/forced-interlock.ts'
import { estimateLoss } from '../../src/domain/loss.ts'
import { type OwnershipRecord, STATES } from '../../src/domain/ownership.ts'

const LOSS: ForcedPolicy['loss'] = [
  { keys: 'ledger-*', rpo: 'never' },
  { keys: '*', rpo: { atMostMs: 60_000 } },
]
const policy: ForcedPolicy = { evidenceMaxAgeMs: 1000, loss: LOSS, approvals: { aboveKeys: 2 } }

function record(key: string, change: Partial<OwnershipRecord> = {}): OwnershipRecord {
  return {
    ...{ key, homeRegion: 'a', targetRegion: null, epoch: 17, state: 'ACTIVE', seq: 4, runId: null, changedAt: '', changedBy: '' },
    ...change,
  }
}

function estimateOf(records: readonly OwnershipRecord[], ageMs = 10_000) {
  return estimateLoss({
    ...{ source: 'a', target: 'b', keys: records.map(r => ({ key: r.key, epoch: r.epoch })), sights: [], stoppedAgeMs: null, loss: LOSS },
    observations: [
      {
        ...{ region: 'a', observer: 'x', ageMs, unpublished: 0, oldestUnpublishedMs: null, highestPerSecond: 1 },
        notApplied: { b: { events: 0, oldestMs: null } },
      },
    ],
    ...{ lastApplied: new Map(), recoverable: new Map() },
  })
}

const records = [record('t-1'), record('t-2', { state: 'FENCED', targetRegion: 'c', runId: 'run-0' })]
const request: ForcedRequest = {
  ...{ runId: 'run-1', intent: 'failover', source: 'a', target: 'b', attemptId: 'attempt-1', estimate: estimateOf(records) },
  ...{ automatic: false, nowMonotonicMs: 5000 },
}
const REQUIRED = [
  'source-dark',
  'no-region-ahead',
  'lease-over',
  'loss-acknowledged',
  'target-can-write',
] as const satisfies readonly CheckName[]

function evidence(check: CheckName, change: Partial<Evidence> = {}, estimate = request.estimate): Evidence {
  return {
    ...{
      check,
      verdict: 'pass',
      observed: 'seen',
      required: 'to be seen',
      observer: 'a test',
      runId: 'run-1',
      key: null,
      step: 'activate',
    },
    ...{ attemptId: 'attempt-1', asOf: '2026-01-01T00:00:00.000Z', asOfMonotonicMs: 4500, facts: { estimateSha256: estimate.sha256 } },
    ...change,
  }
}
const all = REQUIRED.map(check => evidence(check))
const refusals = (seen: readonly Evidence[], change: Partial<ForcedRequest> = {}, of = records, by = policy) =>
  decideForcedActivation(of, seen, by, { ...request, ...change }).refusals

describe('the interlock of a forced failover', () => {
  test('mints one permit for all keys, in whatever state a run left them; a copy is worth nothing', () => {
    const { permit } = decideForcedActivation(records, all, policy, request)
    if (permit === null) throw new Error('refused')
    expect(permit).toMatchObject({ fence: 'lease-over', keys: records.map(r => ({ key: r.key, epoch: 17, seq: 4 })) })
    expect(isGenuineForced(permit)).toBe(true)
    expect(isGenuineForced({ ...permit })).toBe(false)
    for (const state of STATES) expect(refusals(all, {}, [record('t-1', { state })])).toEqual([])
  })

  test('refuses on fail, unknown, absence, age and foreign evidence of any proof, whatever else has passed', () => {
    const worse = fc.oneof(
      fc.constantFrom<Verdict>('fail', 'unknown').map(verdict => ({ verdict })),
      fc.constantFrom<Partial<Evidence>>({ runId: 'run-2' }, { attemptId: 'attempt-0' }, { attemptId: null }, { key: 't-1' }),
      fc
        .oneof(fc.double({ min: 1000.1, max: 1e9, noNaN: true }), fc.double({ min: -1e9, max: -0.1, noNaN: true }), fc.constant(Number.NaN))
        .map(age => ({
          asOfMonotonicMs: 5000 - age,
        })),
    )
    fc.assert(
      fc.property(fc.constantFrom(...REQUIRED), worse, (check, change) => {
        const seen = all.map(e => (e.check === check ? { ...e, ...change } : e))
        expect(refusals(seen).some(why => why.includes(check))).toBe(true)
        expect(refusals(all.filter(e => e.check !== check)).some(why => why.includes(check))).toBe(true)
      }),
    )
  })

  test('wants exactly one fence from outside', () => {
    const rest = all.filter(e => e.check !== 'lease-over')
    fc.assert(
      fc.property(fc.subarray([...OUTSIDE_FENCES]), fences => {
        const seen = [...rest, evidence('approved'), ...fences.map(check => evidence(check))]
        expect(refusals(seen).length === 0).toBe(fences.length === 1)
      }),
    )
    expect(refusals([...all, evidence('external-fence-holds', { verdict: 'fail' })])).toEqual([])
  })

  test('wants an approval of a person’s word, of too many keys, and never passes over a rejection', () => {
    const attested = [...all.filter(e => e.check !== 'lease-over'), evidence('source-attested')]
    expect(refusals(attested)).toEqual(['approved: no evidence for this attempt'])
    expect(refusals([...attested, evidence('approved')])).toEqual([])
    expect(refusals([...attested, evidence('approved')], { automatic: true })).toHaveLength(1)
    const many = [...records, record('t-3')]
    const estimate = estimateOf(many)
    const seen = REQUIRED.map(check => evidence(check, {}, estimate))
    expect(refusals(seen, { estimate }, many)).toEqual(['approved: no evidence for this attempt'])
    expect(refusals([...seen, evidence('approved')], { estimate }, many)).toEqual([])
    expect(refusals([...all, evidence('approved', { verdict: 'fail' })])).toHaveLength(1)
  })

  test('refuses another intent, no keys, and a target that is the source', () => {
    expect(refusals(all, { intent: 'transfer' })).toEqual(["the run's intent is transfer: it may lose nothing"])
    expect(refusals(all, {}, [])).toEqual(['there is no key to hand over'])
    expect(refusals(all, { target: 'a' })).not.toEqual([])
  })

  test('refuses a key that may lose nothing, that would lose too much, or that is not the one estimated', () => {
    const ledger = [record('ledger-1')]
    const estimate = estimateOf(ledger)
    const seen = REQUIRED.map(check => evidence(check, {}, estimate))
    expect(refusals(seen, { estimate }, ledger)).toEqual(['ledger-1: its policy is never'])
    const late = estimateOf(records, 61_000)
    expect(
      refusals(
        REQUIRED.map(check => evidence(check, {}, late)),
        { estimate: late },
      ),
    ).toHaveLength(2)
    for (const wrong of [record('t-9'), record('t-1', { epoch: 18 }), record('t-1', { homeRegion: 'c' })])
      expect(refusals(all, {}, [wrong])).not.toEqual([])
    expect(refusals(all, {}, [record('t-1'), record('t-1')])).toEqual(['t-1 is named twice'])
  })

  test('refuses a loss that was owned for another estimate', () => {
    expect(refusals(all, { estimate: estimateOf(records, 20_000) })).toEqual(['loss-acknowledged: it is of another estimate'])
  })

  test('believes the newest observation', () => {
    const later = evidence('source-dark', { verdict: 'fail', asOfMonotonicMs: 4600 })
    expect(refusals([later, ...all])).toHaveLength(1)
    expect(refusals([...all, later])).toHaveLength(1)
  })
})
