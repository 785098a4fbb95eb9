import { expect, test } from 'vitest'
import { createEventFlow } from '../../src/agent/event-flow.ts'

const ends = (...each: readonly (readonly [end: number, committed: number | null])[]) =>
  each.map(([end, committed], partition) => ({ partition, end: String(end), committed: committed === null ? null : String(committed) }))
const NONE = { count: 0, oldestAgeMs: null }

test('what is not read is as old as the last look at which everything there has been read since', () => {
  const flow = createEventFlow()
  flow.saw(1000, ends([10, 10]), NONE)
  flow.saw(2000, ends([12, 10]), NONE)
  flow.saw(3000, ends([15, 10]), NONE)
  expect(flow.lag(4000, ends([15, 10]))).toEqual({ events: 5, oldestMs: 3000 })
  expect(flow.lag(4000, ends([15, 12]))).toEqual({ events: 3, oldestMs: 2000 })
  expect(flow.lag(4000, ends([15, 15]))).toEqual({ events: 0, oldestMs: null })
})

test('an event that had not left the outbox at that look is older than the look', () => {
  const flow = createEventFlow()
  flow.saw(1000, ends([10, 10]), { count: 1, oldestAgeMs: 700 })
  expect(flow.lag(2000, ends([11, 10]))).toEqual({ events: 1, oldestMs: 1700 })
})

test('a lag that began before the first look has no age, and a group that never committed is no evidence', () => {
  const flow = createEventFlow()
  flow.saw(1000, ends([10, 4]), NONE)
  expect(flow.lag(1000, ends([10, 4]))).toEqual({ events: 6, oldestMs: null })
  expect(flow.lag(1000, ends([10, null]))).toBeNull()
  expect(flow.lag(1000, ends([0, null]))).toEqual({ events: 0, oldestMs: null })
})

test('the rate counts what left the outbox and what did not, is kept for a minute, and begins again with a new topic', () => {
  const flow = createEventFlow()
  expect(flow.highestPerSecond()).toBeNull()
  flow.saw(0, ends([0, 0]), NONE)
  flow.saw(1000, ends([5, 0]), { count: 5, oldestAgeMs: 1 })
  expect(flow.highestPerSecond()).toBe(10)
  flow.saw(2000, ends([10, 0]), NONE)
  expect(flow.highestPerSecond()).toBe(10)
  flow.saw(70_000, ends([10, 0]), NONE)
  expect(flow.highestPerSecond()).toBe(0)
  flow.saw(71_000, ends([2, 0]), NONE)
  expect(flow.highestPerSecond()).toBeNull()
})
