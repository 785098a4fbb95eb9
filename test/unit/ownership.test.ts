import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  epochAfter,
  FORCED_TRANSITIONS,
  isolateTransition,
  type OwnershipRecord,
  recordAfter,
  resumeTransition,
  STATES,
  TRANSITIONS,
  type Transition,
  type TransitionName,
  transition,
} from '../../src/domain/ownership.ts'

const active: OwnershipRecord = {
  key: 'k',
  homeRegion: 'a',
  targetRegion: null,
  epoch: 17,
  state: 'ACTIVE',
  seq: 3,
  runId: null,
  changedAt: '',
  changedBy: '',
}
const names = TRANSITIONS.map(t => t.name)
const run = { runId: 'run-1', target: 'b' }

describe('the table of transitions', () => {
  test('names each transition once and reaches every state', () => {
    expect(new Set(names).size).toBe(TRANSITIONS.length)
    expect(new Set(TRANSITIONS.map(t => t.to))).toEqual(new Set(STATES))
  })

  test('has one planned way to make another region home, from CATCH_UP, and one that is forced, from FENCED; both under the next epoch', () => {
    expect(TRANSITIONS.filter(t => t.home === 'target').map(t => [t.name, t.from, t.epoch])).toEqual([
      ['activate', 'CATCH_UP', 'next'],
      ['activate-forced', 'FENCED', 'next'],
    ])
  })

  test('lets a forced failover seize a key in any state, and nothing else', () => {
    const seizing = TRANSITIONS.filter((t: Transition) => t.seizes === true)
    expect(seizing.map(t => [t.from, t.to, t.epoch, t.home, t.mayWrite])).toEqual(STATES.map(s => [s, 'FENCED', 'same', 'same', 'nobody']))
    expect(STATES.map(isolateTransition)).toEqual(seizing.map(t => t.name))
    expect([...seizing.map(t => t.name), 'activate-forced']).toEqual([...FORCED_TRANSITIONS])
    const fenced = { ...active, state: 'FENCED' as const, targetRegion: 'c', runId: 'run-0' }
    expect(recordAfter(fenced, 'isolate-fenced', run)).toMatchObject({
      state: 'FENCED',
      targetRegion: 'b',
      runId: 'run-1',
      homeRegion: 'a',
    })
  })

  test('gives a key that was fenced back under a new epoch, and one that was only drained under the same', () => {
    expect(STATES.map(s => [s, resumeTransition(s)])).toEqual([
      ['ACTIVE', null],
      ['DRAINING', 'resume-drained'],
      ['FENCED', 'resume-fenced'],
      ['CATCH_UP', 'resume-catch-up'],
    ])
    expect(epochAfter('resume-drained', 17)).toBe(17)
    expect(epochAfter('resume-fenced', 17)).toBe(18)
    expect(epochAfter('resume-catch-up', 17)).toBe(18)
  })

  test('lets nobody begin a write in any state that leads to activation', () => {
    expect(new Set(TRANSITIONS.filter(t => t.to === 'FENCED' || t.to === 'CATCH_UP').map(t => t.mayWrite))).toEqual(new Set(['nobody']))
  })
})

describe('walks over the table', () => {
  test('raise the epoch by at most one a step, never lower it, and change the home only with it', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...names), { maxLength: 40 }), steps => {
        let record = active
        for (const name of steps) {
          const before = record
          record = walk(record, name)
          expect([0, 1]).toContain(record.epoch - before.epoch)
          if (record.homeRegion !== before.homeRegion) expect(record.epoch).toBe(before.epoch + 1)
        }
      }),
    )
  })

  test('pass through FENCED at the old home before another region is home', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...names), { maxLength: 60 }), steps => {
        let record = active
        let fencedSinceMove = false
        for (const name of steps) {
          const next = walk(record, name)
          if (next.state === 'FENCED') fencedSinceMove = true
          if (next.homeRegion !== record.homeRegion) {
            expect(fencedSinceMove).toBe(true)
            fencedSinceMove = false
          }
          if (next.state === 'ACTIVE') fencedSinceMove = false
          record = next
        }
      }),
    )
  })

  test('refuse a step that does not begin where the key stands', () => {
    for (const state of STATES)
      for (const name of names) {
        const attempt = () => recordAfter({ ...active, state, targetRegion: state === 'ACTIVE' ? null : 'b' }, name, run)
        if (transition(name).from === state) expect(attempt().state).toBe(transition(name).to)
        else expect(attempt).toThrow(RangeError)
      }
  })
})

function walk(record: OwnershipRecord, name: TransitionName): OwnershipRecord {
  const target = record.homeRegion === 'a' ? 'b' : 'a'
  return transition(name).from === record.state ? recordAfter(record, name, { runId: 'run-1', target }) : record
}
