import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Config } from '../../src/domain/config.ts'
import { keyPattern } from '../../src/domain/key-pattern.ts'
import {
  type Acknowledgement,
  acknowledgementProblem,
  acknowledges,
  describeBlocked,
  estimateLoss,
  hashOfKeys,
  type LossInput,
  type RegionObservation,
  rpoOf,
} from '../../src/domain/loss.ts'

const look: RegionObservation = {
  ...{ region: 'a', observer: 'agent-1', ageMs: 90_000, unpublished: 3, oldestUnpublishedMs: 400, highestPerSecond: 20 },
  notApplied: { b: { events: 2, oldestMs: 350 } },
}
const LOSS: Config['policy']['loss'] = [
  { keys: 'ledger-*', rpo: 'never' },
  { keys: 'cache-*', rpo: 'any' },
  { keys: '*', rpo: { atMostMs: 120_000 } },
]

function input(change: Partial<LossInput> = {}): LossInput {
  return {
    ...{ source: 'a', target: 'b', keys: [{ key: 'tenant-1', epoch: 17 }], observations: [look], sights: [], stoppedAgeMs: null },
    ...{ lastApplied: new Map(), recoverable: new Map(), loss: LOSS },
    ...change,
  }
}

describe('the estimate', () => {
  test('of a lag of 0.4 s that was read 90 s ago is up to 90.4 s, and the writes that fit into it', () => {
    expect(estimateLoss(input()).totals.unknown).toEqual({ ms: 90_400, writes: 3 + 2 + 20 * 90 })
  })

  test('stops growing when a fence from outside holds', () => {
    const held = estimateLoss(input({ stoppedAgeMs: 60_000 }))
    expect(held.totals.unknown).toEqual({ ms: 30_400, writes: 3 + 2 + 20 * 30 })
    expect(estimateLoss(input({ stoppedAgeMs: 200_000 })).totals.unknown.ms).toBe(400)
  })

  test('is unknown without a look, without one at the target, and without the age of what lags', () => {
    const without: Partial<LossInput>[] = [
      { observations: [] },
      { observations: [{ ...look, region: 'c' }] },
      { target: 'c' },
      { observations: [{ ...look, oldestUnpublishedMs: null }] },
    ]
    for (const change of without) expect(estimateLoss(input(change)).totals.unknown.ms).toBeNull()
    expect(estimateLoss(input({ observations: [{ ...look, highestPerSecond: null }] })).totals.unknown).toEqual({
      ms: 90_400,
      writes: null,
    })
  })

  test('stands on the newest look and on the highest rate of all', () => {
    const newer = { ...look, observer: 'agent-2', ageMs: 10_000, highestPerSecond: 1 }
    expect(estimateLoss(input({ observations: [look, newer] })).totals.unknown).toEqual({ ms: 10_400, writes: 3 + 2 + 200 })
  })

  test('counts a write that nobody sees once for the region, and one that Kafka has for its key', () => {
    const keys = ['tenant-2', 'tenant-1'].map(key => ({ key, epoch: 1 }))
    const { totals, keys: estimated } = estimateLoss(input({ keys, recoverable: new Map([['tenant-1', 4]]) }))
    expect(totals).toMatchObject({ keys: 2, recoverable: 4, unknown: { writes: 1_805 } })
    expect(estimated.map(k => [k.key, k.recoverable, k.unknown.writes])).toEqual([
      ['tenant-1', 4, 1_805],
      ['tenant-2', 0, 1_805],
    ])
  })

  test('knows of no write that could come back where nobody could count, not even that there is none', () => {
    const { totals, keys } = estimateLoss(input({ recoverable: null }))
    expect([totals.recoverable, ...keys.map(k => k.recoverable)]).toEqual([null, ...keys.map(() => null)])
    expect(estimateLoss(input()).totals.recoverable).toBe(0)
  })

  test('keeps what the policy keeps, and says why', () => {
    const keys = ['ledger-1', 'cache-1', 'tenant-1'].map(key => ({ key, epoch: 1 }))
    expect(estimateLoss(input({ keys })).blocked.map(b => [b.key, b.why])).toEqual([['ledger-1', 'never']])
    const late = estimateLoss(input({ keys, observations: [{ ...look, ageMs: 500_000 }] }))
    expect(late.blocked.map(b => [b.key, b.why])).toEqual([
      ['ledger-1', 'never'],
      ['tenant-1', 'over'],
    ])
    const blind = estimateLoss(input({ keys, observations: [] }))
    expect(blind.blocked.map(describeBlocked)).toEqual([
      'ledger-1: its policy is never',
      'tenant-1: its policy is at most 2 min 0 s, and nobody knows how much may be lost',
    ])
    expect(blind.keysSha256).toBe(hashOfKeys(['cache-1']))
  })

  test('has one hash for the same facts in any order, and another for any other', () => {
    const keys = ['x', 'y'].map(key => ({ key, epoch: 1 }))
    const first = estimateLoss(input({ keys }))
    expect(estimateLoss(input({ keys: keys.toReversed() })).sha256).toBe(first.sha256)
    expect(estimateLoss(input({ keys, stoppedAgeMs: 1 })).sha256).not.toBe(first.sha256)
  })

  test('never shrinks as the look grows older', () => {
    fc.assert(
      fc.property(fc.nat(1e7), fc.nat(1e7), (ageMs, more) => {
        const bound = (age: number) => estimateLoss(input({ observations: [{ ...look, ageMs: age }] })).totals.unknown
        expect(bound(ageMs + more).ms ?? 0).toBeGreaterThanOrEqual(bound(ageMs).ms ?? 0)
        expect(bound(ageMs + more).writes ?? 0).toBeGreaterThanOrEqual(bound(ageMs).writes ?? 0)
      }),
    )
  })

  test('reads each key a few times, however many there are', () => {
    const readsPerKey = (size: number) => {
      let reads = 0
      const read = <T>(value: T): T => {
        reads += 1
        return value
      }
      const keys = Array.from({ length: size }, (_, i) => ({
        get key() {
          // In no order: an order of the keys is made, and costs comparisons.
          return read(`tenant-${(i * 7919) % size}`)
        },
        epoch: i,
      }))
      class Asked<V> extends Map<string, V> {
        override get(key: string): V | undefined {
          return read(super.get(key))
        }
      }
      const loss = LOSS.map(({ keys: pattern, rpo }) => ({
        get keys() {
          return read(pattern)
        },
        rpo,
      }))
      const estimate = estimateLoss(input({ keys, loss, lastApplied: new Asked(), recoverable: new Asked() }))
      expect(estimate.totals.keys).toBe(size)
      return reads / size
    }
    // Sorting takes log2 of the number; nothing else may grow with it.
    expect(readsPerKey(8_192)).toBeLessThan(readsPerKey(512) * (13 / 9) + 1)
  })
})

describe('an acknowledgement', () => {
  const known = estimateLoss(input())
  const unknown = estimateLoss(input({ keys: [{ key: 'cache-1', epoch: 1 }], observations: [] }))
  const token = (change: object = {}): Acknowledgement => ({
    ...{ kind: 'token', hash: 'x', boundMs: 120_000, keysSha256: known.keysSha256 },
    ...change,
  })

  test('covers what is at most its bound, and nothing beyond', () => {
    expect(acknowledges({ kind: 'bound', boundMs: 90_400 }, known)).toBe(true)
    for (const boundMs of [90_399, 0, -1, Number.NaN]) {
      expect(acknowledges({ kind: 'bound', boundMs }, known)).toBe(false)
      expect(acknowledges({ kind: 'typed', boundMs }, known)).toBe(false)
    }
    expect(acknowledgementProblem({ kind: 'bound', boundMs: 1_000 }, known)).toBe('up to 90.4 s may be lost, the acknowledgement covers 1s')
  })

  test('covers the unknown only where it says any and the policy does', () => {
    expect(acknowledges({ kind: 'any' }, unknown)).toBe(true)
    expect(acknowledges({ kind: 'bound', boundMs: 1e12 }, unknown)).toBe(false)
    expect(acknowledges({ kind: 'any' }, estimateLoss(input({ observations: [] })))).toBe(false)
  })

  test('that is a token is for its keys', () => {
    expect(acknowledges(token(), known)).toBe(true)
    expect(acknowledges(token({ keysSha256: hashOfKeys(['other']) }), known)).toBe(false)
    expect(acknowledges(token({ boundMs: 1_000 }), known)).toBe(false)
    expect(acknowledges(token({ boundMs: 'any' }), known)).toBe(true)
  })

  test('moves no key whose policy is never', () => {
    expect(acknowledges({ kind: 'any' }, estimateLoss(input({ keys: [{ key: 'ledger-9', epoch: 1 }] })))).toBe(false)
  })
})

describe('the policy of a key', () => {
  test('is that of the first pattern that matches, else never', () => {
    expect(rpoOf('ledger-1', LOSS)).toBe('never')
    expect(rpoOf('cache-1', LOSS)).toBe('any')
    expect(rpoOf('tenant-1', LOSS)).toEqual({ atMostMs: 120_000 })
    expect(rpoOf('tenant-1', [])).toBe('never')
    expect(rpoOf('anything', [{ keys: 'any', rpo: 'any' }])).toBe('never')
  })

  test('matches as a glob of stars does', () => {
    const text = fc.array(fc.constantFrom('a', 'b', '.', '\\'), { maxLength: 8 }).map(parts => parts.join(''))
    const pattern = fc.array(fc.constantFrom('a', 'b', '.', '*', '*', '\\'), { maxLength: 6 }).map(parts => parts.join(''))
    fc.assert(
      fc.property(pattern, text, (glob, key) => {
        const slow = new RegExp(
          `^${glob
            .split('*')
            .map(part => part.replace(/[.\\]/g, '\\$&'))
            .join('.*')}$`,
          's',
        )
        expect(keyPattern(glob, key)).toBe(slow.test(key))
      }),
      { numRuns: 2_000 },
    )
  })
})
