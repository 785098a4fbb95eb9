import { expect, test } from 'vitest'
import type { Sight } from '../../src/domain/loss.ts'
import type { ControlPlane, RegionDatabase, RegionStream } from '../../src/domain/ports.ts'
import { lookAtRegion } from '../../src/engine/vantage.ts'
import { createFakeEngine, only } from './engine-fixture.ts'
import { createVirtualClock } from './virtual-clock.ts'

const DARK_AFTER_MS = 10_000

/** A source that answers at its `answers`th try, and what others have said of it. */
function scene(answers: number, sights: readonly Sight[]) {
  const { clock, until } = createVirtualClock()
  let tries = 0
  const tryIt = () => {
    tries += 1
    return Promise.resolve(tries >= answers ? { reached: true, text: 'answers' } : { reached: false, text: 'does not answer' })
  }
  const engine = {
    ...createFakeEngine([only<RegionDatabase>({ region: 'a', paths: () => [{ name: null, tryIt }] })], {}, clock),
    controlPlane: only<ControlPlane>({ leaseStates: () => Promise.resolve([]), sights: () => Promise.resolve(sights) }),
    stream: () => only<RegionStream>({ brokers: () => new Promise<never>(() => undefined) }),
  }
  return { clock, look: async () => await until(lookAtRegion(engine, 'a', DARK_AFTER_MS, 2_500)), tries: () => tries }
}

test('a region that nobody else ever saw is dark after policy.darkAfter of tries, not after one', async () => {
  const s = scene(Number.POSITIVE_INFINITY, [])
  expect((await s.look()).contact).toBeNull()
  expect(s.clock.monotonicMs()).toBeGreaterThanOrEqual(DARK_AFTER_MS)
  expect(s.tries()).toBeGreaterThan(2)
  // It has been silent all the while: another look adds no second wait.
  const before = s.clock.monotonicMs()
  expect((await s.look()).contact).toBeNull()
  expect(s.clock.monotonicMs() - before).toBeLessThan(DARK_AFTER_MS)
})

test('a slow moment of this host is no darkness: a later try that is answered is a contact', async () => {
  expect((await scene(3, []).look()).contact).toMatchObject({ vantage: 'this host', what: 'database', lastContactAgeMs: 0 })
})

test('where an agent has seen it, its word counts at once', async () => {
  const sight = (lastContactAgeMs: number): Sight => ({ region: 'a', vantage: 'agent x', what: 'database', lastContactAgeMs })
  const old = scene(Number.POSITIVE_INFINITY, [sight(DARK_AFTER_MS + 1)])
  expect((await old.look()).contact).toBeNull()
  expect(old.tries()).toBe(1)
  expect((await scene(Number.POSITIVE_INFINITY, [sight(877)]).look()).contact).toMatchObject({ vantage: 'agent x' })
})
