import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Evidence, Verdict } from '../../src/domain/evidence.ts'
import { type ActivationRequest, decideActivation, type InterlockPolicy, isGenuine, mayActivate } from '../../src/domain/interlock.ts'
import { type OwnershipRecord, STATES } from '../../src/domain/ownership.ts'

const REQUIRED = ['fence-holds', 'barrier-applied', 'versions-equal', 'idempotency-carried'] as const
const policy: InterlockPolicy = { required: REQUIRED, evidenceMaxAgeMs: 1000 }
const request: ActivationRequest = {
  runId: 'run-1',
  key: 'tenant-42',
  targetRegion: 'region-b',
  epoch: 17,
  attemptId: 'attempt-1',
  nowMonotonicMs: 5000,
}
const record: OwnershipRecord = {
  key: 'tenant-42',
  homeRegion: 'region-a',
  targetRegion: 'region-b',
  epoch: 17,
  state: 'CATCH_UP',
  seq: 4,
  runId: 'run-1',
  changedAt: '2026-01-01T00:00:00.000Z',
  changedBy: 'operator',
}

function evidence(check: (typeof REQUIRED)[number], change: Partial<Evidence> = {}): Evidence {
  return {
    check,
    verdict: 'pass',
    observed: 'seen',
    required: 'to be seen',
    observer: 'a test',
    runId: 'run-1',
    key: 'tenant-42',
    step: 'activate',
    attemptId: 'attempt-1',
    asOf: '2026-01-01T00:00:00.000Z',
    asOfMonotonicMs: 4500,
    ...change,
  }
}

const all = REQUIRED.map(check => evidence(check))
const anyCheck = fc.constantFrom(...REQUIRED)

describe('the interlock', () => {
  test('lets a caught-up key activate on fresh evidence of its own attempt', () => {
    expect(mayActivate(record, all, policy, request)).toEqual([])
  })

  test('refuses on fail and on unknown, whatever else has passed', () => {
    fc.assert(
      fc.property(anyCheck, fc.constantFrom<Verdict>('fail', 'unknown'), (check, verdict) => {
        const seen = all.map(e => (e.check === check ? { ...e, verdict } : e))
        expect(mayActivate(record, seen, policy, request)).toEqual([expect.stringContaining(`${check}: ${verdict}`)])
      }),
    )
  })

  test('refuses when a required check is absent', () => {
    fc.assert(
      fc.property(fc.subarray([...REQUIRED], { maxLength: REQUIRED.length - 1 }), seen => {
        const refusals = mayActivate(
          record,
          seen.map(check => evidence(check)),
          policy,
          request,
        )
        expect(refusals).toHaveLength(REQUIRED.length - seen.length)
      }),
    )
  })

  test('refuses evidence that is too old, or from the future of its own clock', () => {
    fc.assert(
      fc.property(
        anyCheck,
        fc.oneof(fc.double({ min: 1000.001, max: 1e9, noNaN: true }), fc.double({ min: -1e9, max: -0.001, noNaN: true })),
        (check, ageMs) => {
          const seen = all.map(e => (e.check === check ? { ...e, asOfMonotonicMs: request.nowMonotonicMs - ageMs } : e))
          expect(mayActivate(record, seen, policy, request)).toHaveLength(1)
        },
      ),
    )
  })

  test('refuses evidence whose age cannot be told', () => {
    const seen = all.map(e => (e.check === 'fence-holds' ? { ...e, asOfMonotonicMs: Number.NaN } : e))
    expect(mayActivate(record, seen, policy, request)).toHaveLength(1)
  })

  test('does not count evidence of another run, key or attempt', () => {
    const foreign = fc.constantFrom<Partial<Evidence>>(
      { runId: 'run-2' },
      { key: 'tenant-43' },
      { key: null },
      { attemptId: 'attempt-0' },
      { attemptId: null },
    )
    fc.assert(
      fc.property(anyCheck, foreign, (check, change) => {
        const seen = all.map(e => (e.check === check ? { ...e, ...change } : e))
        expect(mayActivate(record, seen, policy, request)).toEqual([`${check}: no evidence for this attempt`])
      }),
    )
  })

  test('believes the newest observation, so a pass cannot outlive a later fail', () => {
    const later = evidence('barrier-applied', { verdict: 'fail', asOfMonotonicMs: 4600 })
    expect(mayActivate(record, [later, ...all], policy, request)).toHaveLength(1)
    expect(mayActivate(record, [...all, later], policy, request)).toHaveLength(1)
  })

  test('refuses any record but the one being moved, in CATCH_UP, by this run, to this target', () => {
    const wrong = fc.oneof(
      fc.constantFrom(...STATES.filter(s => s !== 'CATCH_UP')).map(state => ({ state })),
      fc
        .integer({ min: 1, max: 40 })
        .filter(e => e !== 17)
        .map(epoch => ({ epoch })),
      fc.constantFrom(
        { key: 'tenant-43' },
        { runId: 'run-2' },
        { runId: null },
        { targetRegion: null },
        { targetRegion: 'region-c' },
        { homeRegion: 'region-b' },
      ),
    )
    fc.assert(
      fc.property(wrong, change => {
        expect(mayActivate({ ...record, ...change }, all, policy, request)).not.toEqual([])
      }),
    )
  })

  test('refuses a policy that asks for no proof of the fence', () => {
    const loose: InterlockPolicy = { ...policy, required: ['versions-equal'] }
    expect(mayActivate(record, all, loose, request)).toContain('the policy requires no proof of the fence')
    expect(mayActivate(record, [], { ...policy, required: [] }, request)).not.toEqual([])
  })

  test('mints a permit only where it does not refuse, and a copy of a permit is worth nothing', () => {
    const { permit } = decideActivation(record, all, policy, request)
    if (permit === null) throw new Error('the permit was refused')
    expect(isGenuine(permit)).toBe(true)
    expect(isGenuine({ ...permit })).toBe(false)
    expect(permit.evidence.map(e => e.check)).toEqual(REQUIRED)
    expect(decideActivation(record, all.slice(1), policy, request).permit).toBeNull()
  })
})
