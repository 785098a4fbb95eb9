import type pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Fence } from '../../src/domain/fence.ts'
import { targetCanWrite } from '../../src/engine/checks/regions.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'
import { boundaryFence, CAUSE, codeOf, INSERT, VERSIONS } from './region-boundary-fixture.ts'

describe.each(VERSIONS)("proof of a region's fence at its boundary on PostgreSQL %i", version => {
  let f: RegionFixture
  let fence: Fence
  let w: pg.Client
  let keys = 0
  beforeAll(async () => {
    f = await startRegion({ version, defaultHome: 'region-a' })
    fence = boundaryFence(f, 5000)
    w = await f.login('app_writer')
  })
  afterEach(async () => {
    await liftStanding(fence, CAUSE)
  })
  afterAll(async () => {
    await fence?.close()
    await f?.stop()
  })

  const newKey = async (homeRegion = 'region-a') => {
    const key = `key-${(keys += 1)}`
    await f.db.register([{ key, homeRegion, epoch: 1 }])
    return key
  }

  test('a target that is fenced as a whole is refused before the drain', async () => {
    const key = await newKey('region-b')
    await fence.apply(CAUSE)
    const subject = { moves: [{ key, source: 'region-b', target: 'region-a', epoch: 1 }] }
    const engine = { region: () => f.db }
    const seen = await targetCanWrite(engine as never, subject as never, { check: 'target-can-write', parameters: {} } as never)
    expect(seen).toMatchObject({ verdict: 'fail' })
    expect(seen.observed).toContain(`fenced as a whole since`)
  })

  test('the fence of another region or another name is refused', async () => {
    const operator = await f.login('homeregion_operator')
    const call = async (region: string, name: string) =>
      await codeOf(operator.query('select homeregion.fence_region($1, $2, $3, $3, null)', [region, name, 'x']))
    expect([await call('region-b', 'boundary'), await call('region-a', 'other')]).toEqual(['HR006', 'HR006'])
    expect(await codeOf(w.query(`select homeregion.lift_region('region-a', 'boundary', null)`))).toBe('42501')
  })

  test('a writer that another standing fence keeps out is refused before the boundary is asked; kept out by nobody knows what, it proves nothing', async () => {
    await newKey()
    await fence.apply(CAUSE)
    const admin = await f.login('postgres')
    await admin.query('alter role app_writer nologin')
    const fresh = boundaryFence(f, 5000)
    const verdict = async () => (await fresh.verify()).at(-1)?.verdict
    expect(await verdict()).toBe('unknown')
    await admin.query(
      `insert into homeregion.fence (region, name, kind, state, reason, applied_by) values ('region-a', 'logins', 'credentials', 'applied', '', '')`,
    )
    expect(await verdict()).toBe('pass')
    await admin.query(`delete from homeregion.fence where name = 'logins'; alter role app_writer login`)
    expect(await verdict()).toBe('pass')
    await fresh.close()
  })

  test('a guard that was taken off, or a key that was made writable, does not pass for a fence that stands', async () => {
    await newKey()
    await fence.apply(CAUSE)
    const admin = await f.login('postgres')
    await admin.query('alter table account disable trigger zzz_homeregion_insert')
    expect((await fence.verify()).map(o => o.verdict)).toEqual(['pass', 'pass', 'pass', 'fail', 'fail'])
    await admin.query('alter table account enable always trigger zzz_homeregion_insert')
    await admin.query(`insert into homeregion.writable values ('key-by-hand', 1, false)`)
    expect((await fence.verify()).map(o => o.verdict)).toEqual(['pass', 'fail', 'pass', 'pass', 'pass'])
    await fence.apply(CAUSE)
    expect((await fence.verify()).every(o => o.verdict === 'pass')).toBe(true)
  })
})

test('a region that no key is at home in is fenced and proved by its row and its empty table', async () => {
  const f = await startRegion()
  const fence = boundaryFence(f, 5000)
  await fence.apply(CAUSE)
  expect((await fence.verify()).filter(o => o.verdict !== 'pass')).toEqual([])
  const w = await f.login('app_writer')
  expect(await codeOf(w.query(INSERT, ['nobody-knows-me']))).toBe('HR003')
  await liftStanding(fence, CAUSE)
  await fence.close()
  await f.stop()
})

test('a region that cannot be reached says so, and its state is not known', async () => {
  const f = await startRegion()
  const fence = boundaryFence(f, 1000)
  await f.server.kill()
  await expect(fence.apply(CAUSE)).rejects.toMatchObject({ code: 'region-unreachable' })
  expect(await fence.status()).toMatchObject({ state: 'unknown', since: null })
  expect(new Set((await fence.verify()).map(o => o.verdict))).toEqual(new Set(['unknown']))
  await fence.close()
  await f.stop()
})
