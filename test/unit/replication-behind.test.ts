import { describe, expect, test } from 'vitest'
import type { PartitionEnd, RegionStream } from '../../src/domain/ports.ts'
import { replicationBehind } from '../../src/engine/checks/transport.ts'
import { createFakeEngine, createManualClock, createScriptedRegion } from './engine-fixture.ts'

const move = { key: 'tenant-42', source: 'a', target: 'b', epoch: 17, seq: 1 }
const use = { check: 'replication-behind', parameters: { atMost: 2000 } } as const

function watching(ends: readonly (readonly PartitionEnd[])[], unpublished = 0, partition: number | null = null) {
  const clock = createManualClock()
  let look = 0
  const stream = {
    outboxEnds: () => Promise.resolve(ends[Math.min(look++, ends.length - 1)] ?? []),
    partitionOf: () => partition,
  } as unknown as RegionStream
  const engine = {
    ...createFakeEngine([createScriptedRegion('a', { unpublished: () => unpublished }, [])], {}, clock),
    stream: () => stream,
  }
  const subject = { moves: [move], move, barrierEventId: null, startedMonotonicMs: 0, standing: [], memory: new Map<string, unknown>() }
  return { clock, see: async () => await replicationBehind(engine, subject, use) }
}

function end(partition: number, high: number, committed: number | null): PartitionEnd {
  return { partition, end: String(high), committed: committed === null ? null : String(committed) }
}

describe('replication-behind', () => {
  test('passes under steady load once what stood at the end has been consumed, empty partitions or not', async () => {
    const { clock, see } = watching([
      [end(0, 100, 90), end(1, 0, null)],
      [end(0, 130, 100), end(1, 0, null)],
    ])
    expect((await see()).verdict).toBe('unknown')
    clock.advance(50)
    expect(await see()).toMatchObject({ verdict: 'pass', observed: expect.stringContaining('30 events behind') as string })
  })

  test('fails when what stood at the end is not consumed in time', async () => {
    const { clock, see } = watching([[end(0, 100, 90)]])
    await see()
    clock.advance(2001)
    expect((await see()).verdict).toBe('fail')
  })

  test('counts a commit that is newer than the end beside it as 0, and a missing commit as no evidence', async () => {
    expect(await watching([[end(0, 100, 102)]]).see()).toMatchObject({ verdict: 'pass', observed: '0 events behind' })
    expect((await watching([[end(0, 100, null)]]).see()).verdict).toBe('unknown')
    expect((await watching([[]]).see()).verdict).toBe('unknown')
  })

  test('does not take a young unpublished event for progress until it has left', async () => {
    const { see } = watching([[end(0, 100, 100)]], 1)
    expect((await see()).verdict).toBe('unknown')
    expect((await see()).verdict).toBe('unknown')
  })

  describe('with one stalled partition of twelve', () => {
    const twelve = Array.from({ length: 12 }, (_, p) => end(p, 100, p === 5 ? 40 : 100))

    test('lets a key on another partition go, and records which one is behind', async () => {
      expect(await watching([twelve], 0, 4).see()).toMatchObject({
        verdict: 'pass',
        observed: '0 events behind on partition 4',
        facts: { partition: 4, behind: [{ partition: 5, events: '60' }] },
      })
    })

    test('refuses a key on it, and names partition, key, place and what to look at', async () => {
      const { clock, see } = watching([twelve], 0, 5)
      expect((await see()).verdict).toBe('unknown')
      clock.advance(2001)
      expect(await see()).toMatchObject({
        verdict: 'fail',
        observed: expect.stringMatching(
          /^60 events behind on partition 5, where the events of tenant-42 go, .* partition 5 at offset 40: .*hold an event/,
        ) as string,
      })
    })

    test('refuses every key where the relay’s choice of partition is not known', async () => {
      const { clock, see } = watching([twelve])
      await see()
      clock.advance(2001)
      expect((await see()).verdict).toBe('fail')
    })

    test('does not take another partition’s commit for the key’s own', async () => {
      const uncommitted = twelve.map(e => (e.partition === 4 ? end(4, 100, null) : e))
      expect(await watching([uncommitted], 0, 4).see()).toMatchObject({
        verdict: 'unknown',
        observed: expect.stringContaining('nothing on partition 4') as string,
      })
      expect((await watching([twelve.slice(0, 11)], 0, 11).see()).verdict).toBe('unknown')
    })
  })
})
