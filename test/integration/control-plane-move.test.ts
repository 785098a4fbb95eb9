import { afterAll, beforeAll, expect, test } from 'vitest'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { type Fixture, moveKey, only, startFixture } from './control-plane-fixture.ts'

let fixture: Fixture
let store: ControlPlane
beforeAll(async () => {
  fixture = await startFixture()
  store = fixture.store()
})
afterAll(async () => {
  await fixture.stop()
})

test('a key that is moved there and back has risen by two epochs, and its log tells each step', async () => {
  const home = await only(store.register([{ key: 'tenant-1', homeRegion: 'region-a' }]))
  const there = await moveKey(store, home, 'region-b')
  expect(there).toMatchObject({ homeRegion: 'region-b', epoch: 2, state: 'ACTIVE', targetRegion: null, changedBy: 'homeregion_operator' })
  const back = await moveKey(store, there, 'region-a')
  expect(back).toMatchObject({ homeRegion: 'region-a', epoch: 3, state: 'ACTIVE' })
  expect(await only(store.ownership(['tenant-1', 'tenant-none']))).toEqual(back)
  const steps = (await store.history('tenant-1')).map(row => row.transition)
  const move = ['drain', 'fence', 'catch-up', 'activate']
  expect(steps).toEqual(['register', ...move, ...move])
  expect(await store.auditBreak()).toBeNull()
})
