import { describe, expect, it } from 'vitest'
import { rehearsalText } from '../../src/cli/render/rehearsal.ts'
import { isDrillRun } from '../../src/domain/drill.ts'
import { judgeRehearsal, type RehearsalFacts } from '../../src/domain/rehearsal.ts'

const FACTS: RehearsalFacts = {
  ...{ source: 'region-a', target: 'region-b', keys: 5, objectiveMs: 60_000, recoveryMs: 9_400, sinceAcknowledgedMs: 5_100 },
  loss: { bound: { ms: 8_210, writes: 190 }, found: 14, oldestMs: 900 },
  ...{ gaps: 0, duplicates: 0, overlaps: 0, returnMs: 3_000, tookMs: 48_000, failure: null },
}
const judge = (more: Partial<RehearsalFacts> = {}) => judgeRehearsal({ ...FACTS, ...more })

describe('a rehearsed failover', () => {
  it('passes when it was recovered in time, lost no more than was acknowledged, and the keys are back', () => {
    expect(judge()).toMatchObject({ outcome: 'passed', why: [], rehearsed: 'forced failover, sandbox' })
  })

  it('that took longer than the objective is told apart from one that went wrong', () => {
    expect(judge({ recoveryMs: 61_000 })).toMatchObject({ outcome: 'missed-objective', why: [] })
    expect(judge({ recoveryMs: 61_000, gaps: 1 }).outcome).toBe('failed')
  })

  it('fails on a loss beyond what was acknowledged, in writes or in time', () => {
    const bound = { ms: 8_210, writes: 190 }
    expect(judge({ loss: { bound, found: 191, oldestMs: 900 } }).why).toEqual(['191 writes were lost, and at most 190 were acknowledged'])
    expect(judge({ loss: { bound, found: 1, oldestMs: 8_211 } }).why[0]).toContain('8.3 s were acknowledged')
    expect(judge({ loss: { bound: { ms: 'any', writes: null }, found: 9_999, oldestMs: 99_999 } }).outcome).toBe('passed')
  })

  it('fails on what nobody counted, as on what was counted and is wrong', () => {
    for (const name of ['gaps', 'duplicates', 'overlaps', 'returnMs', 'recoveryMs', 'loss'] as const)
      expect(judge({ [name]: null }).outcome, name).toBe('failed')
  })

  it('says what it rehearsed, what was found, and that it says nothing about the time of other machines', () => {
    const text = rehearsalText(judge())
    expect(text).toMatch(/^drill passed: forced failover in a sandbox, 48\.0 s\nkeys {7}5 canary keys region-a -> region-b and back$/m)
    expect(Math.max(...text.split('\n').map(line => line.length))).toBeLessThanOrEqual(80)
    expect(text).toMatch(/9\.4 s after region-a was dark \(objective 1 min 0 s\)\n +5\.1 s after the loss was acknowledged/)
    expect(text).toContain('acknowledged: at most 190 writes of the last 8.3 s')
    expect(text).toContain('not how long your regions take')
    expect(rehearsalText(judge({ gaps: null, failure: 'homeregion rejoin ended with 1: no' }))).toMatch(
      /unknown gaps.*\n.*\nwhy {8}homeregion rejoin/s,
    )
  })
})

it('only a planned move that a drill opened gives way to others', () => {
  expect(isDrillRun({ intent: 'transfer', reason: 'drill: 2 canary keys to region-b' })).toBe(true)
  expect(isDrillRun({ intent: 'failover', reason: 'drill: 2 canary keys to region-b' })).toBe(false)
  expect(isDrillRun({ intent: 'transfer', reason: 'a drill: not one' })).toBe(false)
  expect(isDrillRun({ intent: 'transfer', reason: null })).toBe(false)
})
