import { expect, test } from 'vitest'
import type { BoundaryRow } from '../../src/domain/boundary.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { RegionDatabase } from '../../src/domain/ports.ts'
import { forcedChecks } from '../../src/engine/checks/forced.ts'
import type { CheckSubject, Engine } from '../../src/engine/context.ts'
import type { ForcedMove } from '../../src/engine/forced-move.ts'
import { regionsAhead } from '../../src/engine/regions-ahead.ts'

/** Whoever answers is in time. */
const PATIENT = {
  sleep: (_ms: number, signal?: AbortSignal) => new Promise<void>(resolve => signal?.addEventListener('abort', () => resolve())),
}
const RECORD = { key: 'k', homeRegion: 'a', epoch: 5 }

function row(homeRegion: string, epoch: number): BoundaryRow {
  return { key: 'k', homeRegion, epoch, state: 'ACTIVE', token: 1, barrierEventId: null, writable: homeRegion === 'b' }
}

/** What each region has of the key; an error: it does not answer. `now`: the record as it is read a second time. */
async function look(regions: Readonly<Record<string, BoundaryRow | null | Error>>, now: Partial<typeof RECORD> | null = {}) {
  const region = (name: string) =>
    ({
      aheadOf: () => {
        const found = regions[name] ?? null
        if (found instanceof Error) return Promise.reject(found)
        return Promise.resolve(found === null ? { count: 0, rows: [] } : { count: 1, rows: [found] })
      },
    }) as unknown as RegionDatabase
  const controlPlane = {
    ownership: () => Promise.resolve(now === null ? [] : [{ ...RECORD, ...now } as OwnershipRecord]),
  } as unknown as Engine['controlPlane']
  return await regionsAhead({ region, controlPlane, clock: PATIENT, policy: { callTimeoutMs: 100 } } as unknown as Engine, {
    ...{ target: 'b', others: Object.keys(regions), records: [RECORD], patienceMs: 100 },
  })
}

test.each([
  [
    'the target has it as its own under a later epoch',
    { b: row('b', 6) },
    'b has k at home in b under epoch 6, the control plane in a under epoch 5',
  ],
  ['a third region does', { b: null, c: row('c', 6) }, 'c has k at home in c under epoch 6'],
  ['the target was told that a third one has it', { b: row('c', 6), c: new Error('dark') }, 'b has k at home in c under epoch 6'],
  ['another home has it under the same epoch', { b: row('b', 5) }, 'b has k at home in b under epoch 5'],
])('a control plane that has forgotten a move: %s', async (_, regions, said) => {
  const seen = await look(regions)
  expect(seen.verdict).toBe('fail')
  expect(seen.observed).toContain(said)
})

test('a move that somebody else made between the two looks is no contradiction, and opens nothing', async () => {
  expect((await look({ b: row('b', 6) }, { homeRegion: 'b', epoch: 6 })).verdict).toBe('unknown')
})

test('a key that the control plane does not have any more is one', async () => {
  expect((await look({ b: row('b', 6) }, null)).observed).toContain('the control plane not at all')
})

test('a target that does not answer is unknown; another region that does not is named', async () => {
  expect((await look({ b: new Error('dark'), c: null })).verdict).toBe('unknown')
  expect(await look({ b: null, c: new Error('dark') })).toMatchObject({
    verdict: 'pass',
    observed: '1 key as the control plane has them; nothing is known of c',
  })
})

test('a third region that swallows everything has its whole patience at the gate, and little of it in the hand-over, whose other evidence gets old', async () => {
  const asked = async (tries: ForcedMove['tries']) => {
    const slept: number[] = []
    const clock = { sleep: (ms: number) => Promise.resolve(void slept.push(ms)) }
    const silent = { aheadOf: () => new Promise(() => undefined) }
    const move = {
      ...{ source: 'a', target: 'b', moves: [{ key: 'k', epoch: 5 }], tries },
      engine: { clock, policy: { callTimeoutMs: 5_000 }, region: () => silent },
      settings: { others: ['b', 'c'], policy: { callTimeoutMs: 5_000, evidenceMaxAgeMs: 5_000 } },
    } as unknown as ForcedMove
    const seen = await forcedChecks(() => move)['no-region-ahead']?.(move.engine, {} as CheckSubject, {
      check: 'no-region-ahead',
      parameters: {},
    })
    expect(seen?.verdict).toBe('unknown')
    return slept
  }
  expect(await asked(undefined)).toEqual([5_000, 2_500])
  expect(await asked({ own: [], asOf: '', asOfMonotonicMs: 0, endedMonotonicMs: 0 })).toEqual([5_000, 1_000])
})
