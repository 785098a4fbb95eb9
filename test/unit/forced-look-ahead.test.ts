import { expect, test } from 'vitest'
import type { LeaseState } from '../../src/domain/failover.ts'
import type { Clock, ControlPlane, RegionDatabase, RegionStream } from '../../src/domain/ports.ts'
import { forcedChecks } from '../../src/engine/checks/forced.ts'
import type { Engine } from '../../src/engine/context.ts'
import type { ForcedMove } from '../../src/engine/forced-move.ts'
import { passGates } from '../../src/engine/gate.ts'
import { triesForHandOver } from '../../src/engine/look-ahead.ts'
import { createFakeEngine, only, step } from './engine-fixture.ts'
import { createVirtualClock } from './virtual-clock.ts'

const RUN = 'run-1'
const PATIENCE_MS = 2_000
/** What the looks between two moments may take; none of the fakes takes any. */
const AT_ONCE_MS = 5

type Scene = {
  readonly move: ForcedMove
  readonly engine: Engine
  readonly clock: Clock
  readonly tried: number[]
  until: <T>(work: Promise<T>) => Promise<T>
}

/** A lease that is withheld and over at `overAtMs`, of a source that refuses at once or swallows everything. */
function scene(overAtMs: number, source: 'refuses' | 'swallows'): Scene {
  const { clock, until } = createVirtualClock()
  const tried: number[] = []
  const answer = async () => {
    tried.push(clock.monotonicMs())
    return await (source === 'refuses' ? Promise.reject(new Error('connect ECONNREFUSED')) : new Promise<never>(() => undefined))
  }
  const lease = (): LeaseState => ({
    ...{ region: 'a', generation: 1, grantedTo: 'agent', durationMs: 3000, marginMs: 1000, withheldBy: RUN, stops: true },
    ...{ grantsKnown: true, leftMs: overAtMs - clock.monotonicMs() },
  })
  const engine: Engine = {
    ...createFakeEngine([only<RegionDatabase>({ region: 'a', paths: () => [{ name: null, tryIt: answer }] })], {}, clock),
    controlPlane: only<ControlPlane>({ leaseStates: () => Promise.resolve([lease()]), sights: () => Promise.resolve([]) }),
    stream: () => only<RegionStream>({ brokers: answer }),
  }
  const known: Partial<ForcedMove> = {
    ...{ engine, source: 'a', fence: 'lease-over' },
    journal: only<ForcedMove['journal']>({ runId: RUN }),
    settings: { policy: { evidenceMaxAgeMs: 2 * PATIENCE_MS, callTimeoutMs: 10_000 } } as ForcedMove['settings'],
    triesAhead: null,
    // What the sight of the source took before.
    triesTookMs: source === 'swallows' ? PATIENCE_MS : 5,
  }
  const move = known as ForcedMove
  return { move, engine: { ...engine, checks: forcedChecks(() => move) }, clock, tried, until }
}

const ISOLATE = step('isolate', ['lease-over'], { withinMs: 60_000 })

async function passed({ engine, until }: Scene): Promise<void> {
  const subject = { moves: [], move: null, barrierEventId: null, startedMonotonicMs: 0, standing: [], memory: new Map() }
  expect(await until(passGates(engine, RUN, [ISOLATE], subject, () => undefined))).toMatchObject({ kind: 'passed' })
}

test.each([400, 3000, 17_321])('a lease is found over when it ends (in %i ms), not at a later look of the gate', async overAtMs => {
  const s = scene(overAtMs, 'refuses')
  await passed(s)
  expect(s.clock.monotonicMs()).toBeGreaterThanOrEqual(overAtMs)
  expect(s.clock.monotonicMs()).toBeLessThan(overAtMs + AT_ONCE_MS)
})

test('a source that swallows everything costs its patience while the lease runs out, and nothing after it', async () => {
  const s = scene(8000, 'swallows')
  await passed(s)
  const tries = await s.until(triesForHandOver(s.move))
  expect(s.clock.monotonicMs()).toBeLessThan(8000 + AT_ONCE_MS)
  expect(tries.own.filter(t => t.reached)).toEqual([])
  // Told as of when it was begun, and begun no earlier than it had to be.
  expect(tries.asOfMonotonicMs).toBe(s.tried[0])
  expect(tries.asOfMonotonicMs).toBeGreaterThan(8000 - PATIENCE_MS - 200)
  expect(s.tried).toHaveLength(2)
})

test('a lease that ends before the patience does is no reason to wait less for an answer', async () => {
  const s = scene(500, 'swallows')
  await passed(s)
  await s.until(triesForHandOver(s.move))
  expect(s.clock.monotonicMs()).toBe(PATIENCE_MS)
})

test('answers of before the lease’s end serve one hand-over, and none when they have grown old', async () => {
  const s = scene(3000, 'refuses')
  await passed(s)
  await s.until(s.clock.sleep(1500))
  const old = await s.until(triesForHandOver(s.move))
  expect(old.asOfMonotonicMs).toBeGreaterThanOrEqual(4500)
  const again = await s.until(triesForHandOver(s.move))
  expect(again.asOfMonotonicMs).toBeGreaterThanOrEqual(old.endedMonotonicMs)
  expect(s.tried).toHaveLength(6)
})
