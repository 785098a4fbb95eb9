import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Fence } from '../../src/domain/fence.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'
import { keepsWishesApart } from './fence-wishes.ts'
import { boundaryFence, CAUSE, codeOf, INSERT, stands, VERSIONS } from './region-boundary-fixture.ts'

describe.each(VERSIONS)("the boundary as a region's fence on PostgreSQL %i", version => {
  let f: RegionFixture
  let fence: Fence
  let w: pg.Client
  let other: pg.Client
  let keys = 0
  beforeAll(async () => {
    f = await startRegion({ version, defaultHome: 'region-a' })
    fence = boundaryFence(f, 5000)
    w = await f.login('app_writer')
    other = await f.login('app_writer')
  })
  afterEach(async () => {
    for (const client of [w, other]) await client.query('rollback')
    await liftStanding(fence, CAUSE)
  })
  afterAll(async () => {
    await fence?.close()
    await f?.stop()
  })

  test('keeps wishes apart', async () => {
    await keepsWishesApart(fence)
  })

  const newKey = async (homeRegion = 'region-a') => {
    const key = `key-${(keys += 1)}`
    await f.db.register([{ key, homeRegion, epoch: 1 }])
    return key
  }
  const write = async (client: pg.Client, key: string) => await codeOf(client.query(INSERT, [key]))

  test('closes every key in one commit, is proved, and gives back exactly what was writable', async () => {
    const [open, draining, foreign] = [await newKey(), await newKey(), await newKey('region-b')]
    await f.db.drain(draining, 1, 1)
    const before = (await f.db.rejections()).regionFenced
    expect(await fence.apply(CAUSE)).toContain('keys writable: 0')
    expect([await write(w, open), await write(w, draining), await write(w, foreign)]).toEqual(['HR009', 'HR001', 'HR001'])
    expect((await f.db.rejections()).regionFenced).toBe(before + 1)
    expect(await f.db.read(open)).toMatchObject({ state: 'ACTIVE', writable: false })
    expect(await fence.status()).toMatchObject({ state: 'applied', cause: CAUSE })
    const proof = await fence.verify()
    expect(proof.filter(o => o.verdict !== 'pass')).toEqual([])
    expect(proof.at(-1)?.facts).toMatchObject({ sqlstates: ['HR009'], probes: 8 })
    // Repeating it refuses nothing and keeps the newest wish.
    await fence.apply({ ...CAUSE, reason: 'again' })
    expect(await fence.status()).toMatchObject({ state: 'applied', cause: { ...CAUSE, reason: 'again' } })
    expect(await fence.plan('apply')).toEqual([])
    expect((await fence.plan('lift')).map(s => s.text)).toEqual([
      `select homeregion.lift_region('region-a', 'boundary', ${(await fence.status()).asked})`,
    ])
    await liftStanding(fence, CAUSE)
    expect([await write(w, open), await write(w, draining), await write(w, foreign)]).toEqual([null, 'HR001', 'HR001'])
    expect(await fence.status()).toMatchObject({ state: 'lifted' })
    expect((await fence.verify()).map(o => o.verdict)).toEqual(['fail', 'fail', 'pass', 'pass', 'fail'])
    expect((await fence.plan('apply')).map(s => s.place)).toContain('region-a database as homeregion_operator')
  })

  test.each(['read committed', 'repeatable read', 'serializable'])(
    'an open %s transaction that wrote is named and not ended, and can still commit; the fence says that it stands',
    async isolation => {
      const [key, second] = [await newKey(), await newKey()]
      await w.query(`begin isolation level ${isolation}`)
      await w.query(INSERT, [key])
      const short = boundaryFence(f, 300)
      const error: unknown = await short.apply(CAUSE).catch((e: unknown) => e)
      await short.close()
      expect(error).toMatchObject({ code: 'fence-failed', fields: { inFlight: [{ role: 'app_writer', state: 'idle in transaction' }] } })
      expect((error as { text: { state: string } }).text.state).toMatch(/The fence stands .*\(0 keys writable\)/)
      expect(await fence.status()).toMatchObject({ state: 'applying' })
      expect((await fence.verify()).map(o => o.verdict)).toEqual(['fail', 'pass', 'fail', 'pass', 'pass'])
      expect(await write(other, second)).toBe('HR009')
      const applied = fence.apply(CAUSE)
      await w.query('commit')
      await applied
      expect((await fence.verify()).every(o => o.verdict === 'pass')).toBe(true)
    },
  )

  test('a prepared transaction is waited for and named by gid and owner', async () => {
    const key = await newKey()
    await w.query('begin')
    await w.query(INSERT, [key])
    await w.query(`prepare transaction 'gid of ${key}'`)
    const short = boundaryFence(f, 200)
    await expect(short.apply(CAUSE)).rejects.toMatchObject({
      fields: { inFlight: [{ pid: null, gid: `gid of ${key}`, role: 'app_writer', state: 'prepared' }] },
    })
    await short.close()
    await w.query(`commit prepared 'gid of ${key}'`)
    await fence.apply(CAUSE)
  })

  test('a transaction that is prepared while the fence waits is waited for as before', async () => {
    const key = await newKey()
    await w.query('begin')
    await w.query(INSERT, [key])
    const applied = fence.apply(CAUSE)
    let ended = false
    applied.finally(() => (ended = true)).catch(() => undefined)
    await stands(fence)
    await w.query(`prepare transaction 'late ${key}'`)
    expect((await fence.verify()).map(o => o.verdict)).toEqual(['fail', 'pass', 'fail', 'pass', 'pass'])
    expect(ended).toBe(false)
    await w.query(`commit prepared 'late ${key}'`)
    await applied
  })

  test('a transaction aborted as a whole is not waited for; one aborted inside a savepoint is, since it can go back and commit', async () => {
    const key = await newKey()
    await w.query('begin')
    await w.query(INSERT, [key])
    await expect(w.query('select 1/0')).rejects.toThrow()
    await fence.apply(CAUSE)
    await w.query('rollback')
    await liftStanding(fence, CAUSE)
    await w.query('begin')
    await w.query(INSERT, [key])
    await w.query('savepoint s')
    await expect(w.query('select 1/0')).rejects.toThrow()
    const short = boundaryFence(f, 200)
    await expect(short.apply(CAUSE)).rejects.toMatchObject({ fields: { inFlight: [{ state: 'idle in transaction (aborted)' }] } })
    await short.close()
    const rows = async () => (await other.query('select 1 from account where tenant_id = $1', [key])).rowCount
    expect(await rows()).toBe(0)
    await w.query('rollback to s')
    await w.query('commit')
    expect(await rows()).toBe(1)
    await fence.apply(CAUSE)
  })

  test('a transaction that wrote before is refused its next write, also in a key that is draining', async () => {
    const [key, draining] = [await newKey(), await newKey()]
    await w.query('begin')
    await w.query(INSERT, [draining])
    await f.db.drain(draining, 1, 1)
    expect(await write(w, draining)).toBe(null)
    await other.query('begin')
    await other.query(INSERT, [key])
    const applied = fence.apply(CAUSE)
    await stands(fence)
    expect([await write(w, draining), await write(other, key)]).toEqual(['HR001', 'HR009'])
    await applied
  })

  test.each(['repeatable read', 'serializable'])('a %s snapshot that is older than the fence is refused', async isolation => {
    const key = await newKey()
    for (const client of [w, other]) await client.query(`begin isolation level ${isolation}; select count(*) from account`)
    await fence.apply(CAUSE)
    // The row that admitted it is gone; a first write of a key that nobody registered meets a fence that its snapshot does not show.
    expect([await write(w, key), await write(other, `first-${key}`)]).toEqual(['40001', '40001'])
    await w.query(`rollback; begin isolation level ${isolation}; select count(*) from account`)
    await liftStanding(fence, CAUSE)
    expect(await write(w, key)).toMatch(/40001|HR009/)
    await w.query('rollback')
    expect(await write(w, key)).toBe(null)
  })

  test('a first write of a key at its default home is refused while the fence stands, and one that was under way is swept', async () => {
    await fence.apply(CAUSE)
    expect(await write(w, 'first-1')).toBe('HR009')
    expect(await f.db.read('first-1')).toBe(null)
    await liftStanding(fence, CAUSE)
    await w.query('begin')
    await w.query(INSERT, ['first-2'])
    const applied = fence.apply(CAUSE)
    await stands(fence)
    await w.query('commit')
    await applied
    expect(await f.db.read('first-2')).toMatchObject({ state: 'ACTIVE', writable: false })
    expect(await write(w, 'first-2')).toBe('HR009')
    await liftStanding(fence, CAUSE)
    expect([await write(w, 'first-1'), await write(w, 'first-2')]).toEqual([null, null])
  })

  test('nothing makes a key writable under it: registering and claiming leave it closed, opening is refused; the lift opens all', async () => {
    const [arriving, leaving] = [await newKey('region-b'), await newKey()]
    await f.db.drain(leaving, 1, 1)
    await fence.apply(CAUSE)
    const registered = await newKey()
    const claimed = await f.db.claim(`claimed-${version}`, { homeRegion: 'region-a', epoch: 1 }, 3)
    expect(claimed).toMatchObject({ state: 'ACTIVE', writable: false })
    expect(await f.db.read(registered)).toMatchObject({ state: 'ACTIVE', writable: false })
    for (const [key, epoch] of [
      [arriving, 2],
      [leaving, 1],
      [registered, 1],
    ] as const)
      await expect(f.db.open(key, epoch, 5)).rejects.toMatchObject({ code: 'check-refused', fields: { sqlstate: 'HR009' } })
    expect(await f.db.read(arriving)).toMatchObject({ homeRegion: 'region-b', epoch: 1 })
    const facts = await f.db.facts()
    expect([facts.fencedReason, facts.fencedSince]).toEqual([CAUSE.reason, (await fence.status()).since])
    await liftStanding(fence, CAUSE)
    for (const key of [registered, claimed.key]) expect(await write(w, key)).toBe(null)
    expect(await f.db.open(arriving, 2, 5)).toMatchObject({ writable: true })
    expect(await f.db.open(leaving, 1, 5)).toMatchObject({ writable: true })
    expect(await f.db.facts()).toMatchObject({ fencedReason: null, fencedSince: null })
  })

  test('a single key is drained and fenced under it, barrier and all, and follows its new home', async () => {
    const key = await newKey()
    await fence.apply(CAUSE)
    await f.db.drain(key, 1, 1)
    const barrier = randomUUID()
    expect(await f.db.fence(key, 1, 1, barrier)).toMatchObject({ state: 'FENCED', writable: false, barrierEventId: barrier })
    expect(await f.db.unpublished(key)).toMatchObject({ oldestEventId: barrier })
    await f.db.follow(key, 'region-b', 2, 1)
    await liftStanding(fence, CAUSE)
    expect(await f.db.read(key)).toMatchObject({ homeRegion: 'region-b', writable: false })
    expect(await write(w, key)).toBe('HR001')
  })

  test('copies of foreign changes go on, and hold nothing up', async () => {
    const [own, foreign] = [await newKey(), await newKey('region-b')]
    const admin = await f.login('postgres')
    await admin.query('set session_replication_role = replica')
    await admin.query('begin')
    await admin.query(INSERT, [foreign])
    await fence.apply(CAUSE)
    expect(await write(admin, foreign)).toBe(null)
    await admin.query('commit')
    expect([await write(admin, foreign), await write(admin, own)]).toEqual([null, 'HR001'])
  })
})
