import { describe, expect, test } from 'vitest'
import type { PartitionEnd, RegionStream } from '../../src/domain/ports.ts'
import { replicationBehind } from '../../src/engine/checks/transport.ts'
import { createFakeEngine, createManualClock, createScriptedRegion } from './engine-fixture.ts'

const move = { key: 'tenant-42', source: 'a', target: 'b', epoch: 17, seq: 1 }
const use = { check: 'replication-behind', parameters: { atMost: 2000 } } as const

function watching(ends: readonly (readonly PartitionEnd[])[], unpublished = 0) {
  const clock = createManualClock()
  let look = 0
  const stream = { outboxEnds: () => Promise.resolve(ends[Math.min(look++, ends.length - 1)] ?? []) } as unknown as RegionStream
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
})
