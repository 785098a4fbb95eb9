import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { installBoundary } from '../../src/adapters/postgres-region/install.ts'
import { adminSecrets, type RegionFixture, startRegion } from './boundary-fixture.ts'

let f: RegionFixture
beforeAll(async () => {
  f = await startRegion()
})
afterAll(async () => await f?.stop())

const insert = `insert into account (tenant_id, account_id, version, billing_address) values ($1, $2, 1, 'x')`

describe('the boundary', () => {
  test('a second installation changes nothing and says so', async () => {
    const again = await installBoundary({ config: f.config, region: f.region, secrets: adminSecrets(f), dryRun: false })
    expect(again).toEqual({ shown: [], applied: false })
    expect(await f.db.facts()).toMatchObject({
      region: 'region-a',
      boundaryVersion: 4,
      guardProblems: [],
      missingPrivileges: [],
      readOnly: false,
    })
  })

  test('a key goes from ACTIVE through the drain and the fence to another home and back', async () => {
    const w = await f.login('app_writer')
    await expect(w.query(insert, ['t1', 'a'])).rejects.toMatchObject({ code: 'HR003' })
    await f.db.register([{ key: 't1', homeRegion: 'region-a', epoch: 1 }])
    await w.query(insert, ['t1', 'a'])
    expect(await f.db.claim('t1', { homeRegion: 'region-a', epoch: 1 }, 5)).toMatchObject({ state: 'ACTIVE', writable: true, token: 5 })
    await expect(f.db.drain('t1', 1, 4)).rejects.toMatchObject({ code: 'superseded' })
    await expect(f.db.drain('t1', 2, 5)).rejects.toMatchObject({ code: 'epoch-moved' })
    expect(await f.db.drain('t1', 1, 5)).toMatchObject({ state: 'DRAINING', writable: false })
    await expect(w.query(insert, ['t1', 'b'])).rejects.toMatchObject({ code: 'HR001' })
    expect(await f.db.inFlight('t1', 50)).toEqual([])
    const barrier = randomUUID()
    expect(await f.db.fence('t1', 1, 5, barrier)).toMatchObject({ state: 'FENCED', writable: false, barrierEventId: barrier })
    expect(await f.db.fence('t1', 1, 5, randomUUID())).toMatchObject({ state: 'FENCED', barrierEventId: barrier })
    expect(await f.db.unpublished('t1')).toMatchObject({ count: 1, oldestEventId: barrier })
    const position = await f.db.position('t1', barrier)
    expect(position).toMatchObject({ epoch: 1, versions: [{ table: 'public.account', rows: 1, highest: 1 }], idempotency: { rows: 0 } })
    const probes = await f.db.probeWrites('t1', 1, 'read committed')
    expect(probes.map(p => [p.table, p.outcome, p.sqlstate])).toEqual([
      ['public.account', 'refused', 'HR001'],
      ['public.invoice', 'refused', 'HR001'],
      ['public.outbox', 'refused', 'HR001'],
      ['public.idempotency', 'refused', 'HR001'],
    ])
    await expect(f.db.open('t1', 1, 5)).rejects.toMatchObject({ code: 'epoch-moved' })
    expect(await f.db.follow('t1', 'region-b', 2, 5)).toMatchObject({ homeRegion: 'region-b', epoch: 2, state: 'ACTIVE', writable: false })
    expect(await f.db.open('t1', 3, 6)).toMatchObject({ homeRegion: 'region-a', epoch: 3, state: 'ACTIVE', writable: true })
    const open = await f.db.probeWrites('t1', 3, 'repeatable read')
    expect(open.map(p => p.outcome)).toEqual(['admitted', 'admitted', 'admitted', 'admitted'])
    expect((await f.db.probeWrites('t1', 2, 'read committed')).map(p => p.sqlstate)).toEqual(['HR002', 'HR002', 'HR002', 'HR002'])
    expect(await f.db.rejections()).toMatchObject({ unknownKey: 1, draining: 1, fenced: 4, staleEpoch: 4 })
  })
})
