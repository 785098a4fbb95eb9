import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  epochAfter,
  type OwnershipRecord,
  recordAfter,
  resumeTransition,
  STATES,
  TRANSITIONS,
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

  test('has exactly one way to make another region home, and it leads from CATCH_UP under the next epoch', () => {
    expect(TRANSITIONS.filter(t => t.home === 'target').map(t => [t.name, t.from, t.epoch])).toEqual([['activate', 'CATCH_UP', 'next']])
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
    expect(TRANSITIONS.filter(t => t.to === 'FENCED' || t.to === 'CATCH_UP').map(t => t.mayWrite)).toEqual(['nobody', 'nobody'])
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
