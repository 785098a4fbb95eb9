import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { installControlPlane } from '../../src/adapters/control-plane/install.ts'
import { installBoundary } from '../../src/adapters/postgres-region/install.ts'
import { createRegionPulse } from '../../src/adapters/postgres-region/region-pulse.ts'
import type { Config } from '../../src/domain/config.ts'
import type { RegionPulse } from '../../src/domain/pulse.ts'
import { codeOf, INSERT } from './region-boundary-fixture.ts'
import { type SharedFixture, startShared } from './shared-fixture.ts'

let f: SharedFixture
let pulse: RegionPulse
let a: pg.Client
let b: pg.Client
beforeAll(async () => {
  f = await startShared()
  const leased: Config = {
    ...f.config,
    regions: [{ ...f.regionA, lease: { durationMs: 30_000, marginMs: 1000, onAgentOutage: 'stop' } }, f.regionB],
  }
  await installControlPlane({ config: leased, secrets: f.secrets, dryRun: false })
  await installBoundary({ config: leased, region: f.regionA, secrets: f.secrets, dryRun: false })
  pulse = createRegionPulse(f.regionA, leased, f.secrets, 5000)
  a = await f.login('writer_a')
  b = await f.login('writer_b')
})
afterAll(async () => {
  await pulse?.close()
  await f?.stop()
})

test('in a shared database each region has its own lease: one that is over stops its own logins and nobody else', async () => {
  await f.store.register([
    { key: 'of-a', homeRegion: 'region-a' },
    { key: 'of-b', homeRegion: 'region-b' },
  ])
  const both = async () => [await codeOf(a.query(INSERT, ['of-a'])), await codeOf(b.query(INSERT, ['of-b']))]
  expect(await both()).toEqual(['HR004', null])
  await pulse.grantLease(1, await pulse.readClock(), 30_000)
  expect(await both()).toEqual([null, null])
  await a.query('begin')
  await b.query('begin')
  expect(await both()).toEqual([null, null])
  await pulse.grantLease(2, await pulse.readClock(), 1)
  expect([await codeOf(a.query('commit')), await codeOf(b.query('commit'))]).toEqual(['HR004', null])
  expect(await both()).toEqual(['HR004', null])
  // Not its home: told so, whatever the lease says.
  expect(await codeOf(a.query(INSERT, ['of-b']))).toBe('HR001')
  expect((await f.a.rejections()).leaseOver).toBe(3)
})
