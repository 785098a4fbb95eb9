import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'

const VERSIONS = existsSync('/usr/lib/postgresql/15/bin/postgres') ? ([18, 15] as const) : ([18] as const)
const INSERT = `insert into account (tenant_id, account_id, version, billing_address) values ($1, $2, 1, 'x')`

describe.each(VERSIONS)('writes in flight on PostgreSQL %i', version => {
  let f: RegionFixture
  let w: pg.Client
  let other: pg.Client
  let keys = 0
  beforeAll(async () => {
    f = await startRegion({ version })
    w = await f.login('app_writer')
    other = await f.login('app_writer')
  })
  afterAll(async () => await f?.stop())
  const newKey = async () => {
    const key = `key-${(keys += 1)}`
    await f.db.register([{ key, homeRegion: 'region-a', epoch: 1 }])
    return key
  }

  test.each(['repeatable read', 'serializable'])('a %s transaction whose snapshot is older than the fence is refused', async isolation => {
    const key = await newKey()
    await w.query(`begin isolation level ${isolation}; select count(*) from account`)
    await f.db.drain(key, 1, 1)
    await expect(w.query(INSERT, [key, 'a'])).rejects.toMatchObject({ code: '40001' })
    await w.query(`rollback; begin isolation level ${isolation}; select count(*) from account`)
    await f.db.fence(key, 1, 1, randomUUID())
    await expect(w.query(INSERT, [key, 'a'])).rejects.toMatchObject({ code: 'HR001' })
    await w.query('rollback')
  })

  test.each(['read committed', 'repeatable read', 'serializable'])(
    'an idle %s transaction holds up the fence and is listed, while the drain and refused writers wait for nobody',
    async isolation => {
      const key = await newKey()
      await w.query(`begin isolation level ${isolation}`)
      await w.query(INSERT, [key, 'a'])
      const asked = performance.now()
      expect(await f.db.drain(key, 1, 1)).toMatchObject({ state: 'DRAINING', writable: false })
      await expect(other.query(INSERT, [key, 'b'])).rejects.toMatchObject({ code: 'HR001' })
      expect(performance.now() - asked).toBeLessThan(800)
      const holders = f.db.inFlight(key, 400)
      const refused = performance.now()
      await expect(other.query(INSERT, [key, 'b'])).rejects.toMatchObject({ code: 'HR001' })
      expect(performance.now() - refused).toBeLessThan(300)
      expect(await holders).toMatchObject([{ role: 'app_writer', state: 'idle in transaction', gid: null }])
      expect((await holders)[0]?.ageMs).toBeGreaterThan(0)
      await expect(f.db.fence(key, 1, 1, randomUUID())).rejects.toMatchObject({ code: 'check-refused', retriable: true })
      await w.query('commit')
      expect(await f.db.inFlight(key, 500)).toEqual([])
      expect(await f.db.fence(key, 1, 1, randomUUID())).toMatchObject({ state: 'FENCED' })
      expect(await f.db.digests(key)).toMatchObject({ versions: [{ rows: 1 }] })
    },
  )

  test('a transaction that had begun to write before the drain may finish its other writes, a new one may not begin', async () => {
    const key = await newKey()
    await w.query('begin')
    await w.query(INSERT, [key, 'a'])
    await f.db.drain(key, 1, 1)
    await w.query(INSERT, [key, 'b'])
    await w.query(`insert into idempotency values ($1, 'k', '{}')`, [key])
    await w.query('commit')
    await w.query('begin')
    await expect(w.query(INSERT, [key, 'c'])).rejects.toMatchObject({ code: 'HR001' })
    await w.query('rollback')
    await f.db.fence(key, 1, 1, randomUUID())
    expect(await f.db.digests(key)).toMatchObject({ versions: [{ rows: 2 }], idempotency: { rows: 1 } })
  })

  test('a transaction that had begun to write elsewhere before the drain is refused after the fence', async () => {
    const [key, second] = [await newKey(), await newKey()]
    await w.query('begin')
    await w.query(INSERT, [second, 'a'])
    await f.db.drain(key, 1, 1)
    await f.db.fence(key, 1, 1, randomUUID())
    await expect(w.query(INSERT, [key, 'a'])).rejects.toMatchObject({ code: 'HR001' })
    await w.query('rollback')
  })

  test('a prepared transaction holds the fence and is named by gid and owner', async () => {
    const key = await newKey()
    await w.query('begin')
    await w.query(INSERT, [key, 'a'])
    await w.query(`prepare transaction 'gid of ${key}'`)
    await f.db.drain(key, 1, 1)
    expect(await f.db.inFlight(key, 50)).toMatchObject([{ pid: null, gid: `gid of ${key}`, role: 'app_writer', state: 'prepared' }])
    await expect(f.db.fence(key, 1, 1, randomUUID())).rejects.toMatchObject({ code: 'check-refused' })
    await w.query(`commit prepared 'gid of ${key}'`)
    expect(await f.db.inFlight(key, 500)).toEqual([])
    await f.db.fence(key, 1, 1, randomUUID())
    expect(await f.db.digests(key)).toMatchObject({ versions: [{ rows: 1 }] })
  })

  test('an outbox row that is not committed yet cannot be missed: the fence waits for it, and then it is counted', async () => {
    const key = await newKey()
    const event = `insert into outbox (event_id, tenant_id, aggregate_type, aggregate_id, event_type, source_region, home_region, owner_epoch, aggregate_version, occurred_at)
                   values (gen_random_uuid(), $1, 'a', 'a', 'a', 'region-a', 'region-a', 1, 1, now())`
    await w.query('begin')
    await w.query(event, [key])
    await f.db.drain(key, 1, 1)
    expect(await f.db.unpublished(key)).toMatchObject({ count: 0 })
    expect(await f.db.inFlight(key, 50)).toHaveLength(1)
    await w.query('commit')
    await f.db.fence(key, 1, 1, randomUUID())
    expect(await f.db.unpublished(key)).toMatchObject({ count: 2 })
  })

  test('a write inside a savepoint that was rolled back holds nothing and leaves nothing', async () => {
    const key = await newKey()
    await w.query('begin; savepoint s')
    await w.query(INSERT, [key, 'a'])
    await w.query('rollback to s')
    await f.db.drain(key, 1, 1)
    await f.db.fence(key, 1, 1, randomUUID())
    await expect(w.query(INSERT, [key, 'b'])).rejects.toMatchObject({ code: 'HR001' })
    await w.query('rollback')
  })

  test('a request of the first term is refused after the key came home again', async () => {
    const key = await newKey()
    await f.db.drain(key, 1, 1)
    await f.db.fence(key, 1, 1, randomUUID())
    await f.db.follow(key, 'region-b', 2, 1)
    await f.db.open(key, 3, 2)
    await w.query(`begin; set local homeregion.epoch = '1'`)
    await expect(w.query(INSERT, [key, 'a'])).rejects.toMatchObject({ code: 'HR002' })
    await w.query(`rollback; begin; set local homeregion.epoch = '3'`)
    await w.query(INSERT, [key, 'a'])
    await w.query('commit')
    const admin = await f.login('postgres')
    await admin.query('select homeregion.require_epoch($1, true)', [key])
    await expect(w.query(INSERT, [key, 'b'])).rejects.toMatchObject({ code: 'HR002' })
  })

  test('a superseded operator and a late request change nothing', async () => {
    const key = await newKey()
    await f.db.claim(key, { homeRegion: 'region-a', epoch: 1 }, 10)
    const before = await f.db.read(key)
    await expect(f.db.claim(key, { homeRegion: 'region-a', epoch: 1 }, 9)).rejects.toMatchObject({ code: 'superseded' })
    for (const call of [
      f.db.drain(key, 1, 9),
      f.db.fence(key, 1, 9, randomUUID()),
      f.db.open(key, 2, 9),
      f.db.follow(key, 'region-b', 2, 9),
    ])
      await expect(call).rejects.toMatchObject({ code: 'superseded' })
    expect(await f.db.read(key)).toEqual(before)
    await expect(f.db.fence(key, 1, 10, randomUUID())).rejects.toMatchObject({ code: 'epoch-moved' })
    await f.db.drain(key, 1, 10)
    expect(await f.db.open(key, 1, 10)).toMatchObject({ state: 'ACTIVE', epoch: 1, writable: true })
    await f.db.drain(key, 1, 10)
    await f.db.fence(key, 1, 10, randomUUID())
    await expect(f.db.drain(key, 1, 10)).rejects.toMatchObject({ code: 'epoch-moved' })
    await expect(f.db.open(key, 1, 10)).rejects.toMatchObject({ code: 'epoch-moved' })
    expect(await f.db.open(key, 2, 10)).toMatchObject({ epoch: 2, writable: true })
    await expect(f.db.follow(key, 'region-b', 2, 10)).rejects.toMatchObject({ code: 'epoch-moved' })
  })

  test('claiming a key that this region never saw makes it writable nowhere', async () => {
    expect(await f.db.claim('new here', { homeRegion: 'region-a', epoch: 4 }, 1)).toMatchObject({ state: 'DRAINING', writable: false })
    expect(await f.db.claim('new there', { homeRegion: 'region-b', epoch: 4 }, 1)).toMatchObject({
      homeRegion: 'region-b',
      writable: false,
    })
    await expect(w.query(INSERT, ['new here', 'a'])).rejects.toMatchObject({ code: 'HR001' })
  })
})
