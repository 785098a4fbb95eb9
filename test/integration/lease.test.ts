import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { installBoundary } from '../../src/adapters/postgres-region/install.ts'
import { createRegionDatabase } from '../../src/adapters/postgres-region/region-database.ts'
import { createRegionPulse } from '../../src/adapters/postgres-region/region-pulse.ts'
import type { Config, RegionConfig } from '../../src/domain/config.ts'
import type { RegionDatabase } from '../../src/domain/ports.ts'
import type { RegionPulse } from '../../src/domain/pulse.ts'
import { adminSecrets, type RegionFixture, secrets, startRegion } from './boundary-fixture.ts'
import { codeOf, INSERT, VERSIONS } from './region-boundary-fixture.ts'

const LEASE = { durationMs: 30_000, marginMs: 2000 }

describe.each(VERSIONS)('a lease that stops writes, on PostgreSQL %i', version => {
  let f: RegionFixture
  let config: Config
  let region: RegionConfig
  let db: RegionDatabase
  let pulse: RegionPulse
  let w: pg.Client
  let other: pg.Client
  let generation = 0
  let keys = 0
  const install = async (onAgentOutage: 'stop' | 'keep') => {
    region = { ...f.region, lease: { ...LEASE, onAgentOutage } }
    const bulk = { schema: 'public', table: 'bulk', key: 'tenant_id', guard: 'statement', versions: null } as const
    config = { ...f.config, regions: [region], guarded: [...f.config.guarded, bulk] }
    await installBoundary({ config, region, secrets: adminSecrets(f), dryRun: false })
  }
  beforeAll(async () => {
    f = await startRegion({ version, install: false })
    const admin = await f.login('postgres')
    await admin.query('create table bulk (tenant_id text not null); grant select, insert, update, delete on bulk to app_writer')
    await install('stop')
    db = createRegionDatabase(region, config, secrets)
    pulse = createRegionPulse(region, config, secrets, 5000)
    w = await f.login('app_writer')
    other = await f.login('app_writer')
  })
  afterEach(async () => {
    for (const client of [w, other]) await client.query('rollback')
  })
  afterAll(async () => {
    await Promise.all([db?.close(), pulse?.close()])
    await f?.stop()
  })

  const newKey = async () => {
    const key = `key-${(keys += 1)}`
    await db.register([{ key, homeRegion: region.name, epoch: 1 }])
    return key
  }
  const grant = async (durationMs: number) => await pulse.grantLease((generation += 1), await pulse.readClock(), durationMs)
  const write = async (client: pg.Client, key: string) => await codeOf(client.query(INSERT, [key]))
  const overAt = async () =>
    await expect.poll(async () => (await db.facts()).lease?.leftMs ?? 1, { timeout: 10_000, interval: 20 }).toBeLessThanOrEqual(0)

  test('was never granted: nobody writes, and it is said why', async () => {
    const key = await newKey()
    expect((await db.facts()).lease).toBeNull()
    await expect(w.query(INSERT, [key])).rejects.toThrow(/region-a was never granted a lease/)
    expect(await write(w, key)).toBe('HR004')
    expect((await db.rejections()).leaseOver).toBe(2)
    expect((await db.facts()).guardProblems).toEqual([])
  })

  test("refuses at its end by the region's own clock, at a write and at a commit that began before it", async () => {
    const [key, idle] = [await newKey(), await newKey()]
    await grant(600)
    await other.query('begin')
    expect([await write(w, key), await write(other, idle)]).toEqual([null, null])
    await overAt()
    const before = (await db.rejections()).leaseOver
    expect([await write(w, key), await codeOf(other.query('commit'))]).toEqual(['HR004', 'HR004'])
    expect((await db.rejections()).leaseOver).toBe(before + 2)
    expect((await w.query('select from account where tenant_id = $1', [idle])).rowCount).toBe(0)
    // Rows of partitions, of a bulk statement and of the outbox as well.
    await grant(LEASE.durationMs)
    await w.query('begin')
    await w.query(
      `insert into invoice (tenant_id, invoice_id, account_id, amount_cents) select $1, g, 'a', 1 from generate_series(1, 50) g`,
      [key],
    )
    await grant(1)
    expect(await codeOf(w.query('commit'))).toBe('HR004')
  })

  test('is checked by what was granted last in a transaction whose snapshot is older', async () => {
    const [key, late] = [await newKey(), await newKey()]
    await grant(400)
    await w.query('begin isolation level repeatable read')
    await w.query('select 1')
    await other.query('begin isolation level repeatable read')
    await other.query('select 1')
    await overAt()
    expect(await write(w, key)).toBe('HR004')
    await grant(LEASE.durationMs)
    // The renewal counts whatever the snapshot shows, at the write and at the commit; and so does the end after it.
    expect(await write(other, late)).toBeNull()
    await grant(1)
    await overAt()
    expect(await write(other, late)).toBe('HR004')
  })

  test('is what was committed: a grant that is rolled back extends nothing, one that is taken back ends it', async () => {
    const key = await newKey()
    const admin = await f.login('postgres')
    await grant(1)
    await overAt()
    await admin.query('begin')
    await admin.query(`select homeregion.grant_lease($1, $2, clock_timestamp() + interval '1 h')`, [region.name, generation + 1])
    await admin.query('rollback')
    expect(await write(w, key)).toBe('HR004')
    await grant(LEASE.durationMs)
    expect(await write(w, key)).toBeNull()
    await admin.query('delete from homeregion.lease')
    await expect(w.query(INSERT, [key])).rejects.toThrow(/was never granted a lease/)
    // Installed again over a lease that stands, it goes by that.
    expect(await grant(LEASE.durationMs)).toEqual({ stops: true })
    await install('keep')
    expect(await grant(LEASE.durationMs)).toEqual({ stops: false })
    await install('stop')
    // The region's own word at each grant: a trigger that does not fire stops nothing.
    await admin.query('alter table public.account disable trigger zzz_homeregion_lease')
    expect(await grant(LEASE.durationMs)).toEqual({ stops: false })
    await admin.query('alter table public.account enable trigger zzz_homeregion_lease')
    expect(await grant(LEASE.durationMs)).toEqual({ stops: true })
    expect(await write(w, key)).toBeNull()
  })

  test('a statement on a bulk-loaded table is checked once at the commit, and what a savepoint takes back is queued again', async () => {
    const key = await newKey()
    const rows = 'insert into bulk (tenant_id) select $1 from generate_series(1, 20)'
    const under = async (...statements: readonly string[]) => {
      await grant(LEASE.durationMs)
      await w.query('begin')
      for (const statement of statements) await w.query(statement, statement.includes('$1') ? [key] : [])
      await grant(1)
      await overAt()
      const code = await codeOf(w.query('commit'))
      await w.query('rollback')
      return code
    }
    expect(await under(rows)).toBe('HR004')
    expect(await under(`delete from bulk where tenant_id = $1`)).toBeNull()
    expect(await under('savepoint s', rows, 'rollback to s', rows)).toBe('HR004')
    expect(await under('savepoint s', rows, 'rollback to s')).toBeNull()
    expect(await under(rows, 'savepoint s', 'set constraints all immediate', 'rollback to s')).toBe('HR004')
    expect(await under(rows, 'set constraints all immediate', 'set constraints all deferred', rows)).toBe('HR004')
    expect(await under(INSERT, 'set constraints all immediate', 'set constraints all deferred', INSERT)).toBe('HR004')
    await grant(LEASE.durationMs)
    await w.query(rows, [key])
    expect((await w.query('select from bulk')).rowCount).toBe(20)
    expect(await codeOf(w.query('select from homeregion.commit_check'))).toBe('42501')
    await w.query('begin')
    await w.query(rows, [key])
    expect(await codeOf(w.query("prepare transaction 'bulk'"))).toBe('HR004')
    await w.query('rollback')
    expect(await under('update bulk set tenant_id = $1')).toBe('HR004')
    const admin = await f.login('postgres')
    expect((await admin.query('select from homeregion.commit_check')).rowCount).toBe(0)
    await admin.query('alter table homeregion.commit_check disable trigger user')
    await admin.query('alter table homeregion.lease disable trigger user')
    expect((await db.facts()).guardProblems).toHaveLength(2)
    await install('stop')
    expect((await db.facts()).guardProblems).toEqual([])
  })

  test('a late grant extends nothing, a lower generation changes nothing, a later end needs a higher one', async () => {
    const key = await newKey()
    const reading = await pulse.readClock()
    await grant(50)
    await overAt()
    // The request of an agent that was stopped carries the end that was granted then.
    await pulse.grantLease((generation += 1), reading, 50)
    expect(await write(w, key)).toBe('HR004')
    await expect(pulse.grantLease(generation, await pulse.readClock(), 5000)).rejects.toMatchObject({ code: 'superseded' })
    await expect(pulse.grantLease(generation - 1, await pulse.readClock(), 5000)).rejects.toMatchObject({ code: 'superseded' })
    await pulse.grantLease(generation, reading, 50)
    expect(await write(w, key)).toBe('HR004')
    await grant(LEASE.durationMs)
    expect(await write(w, key)).toBeNull()
  })

  test("the region's own roles cannot grant it", async () => {
    expect(await codeOf(w.query(`select homeregion.grant_lease('${region.name}', 99, now() + interval '1 h')`))).toBe('42501')
    expect(await codeOf(w.query('update homeregion.lease set expires_at = now()'))).toBe('42501')
    const operator = await f.login('homeregion_operator')
    expect(await codeOf(operator.query('update homeregion.lease set expires_at = now()'))).toBe('42501')
    for (const end of ["'infinity'", 'null'])
      expect(await codeOf(operator.query(`select homeregion.grant_lease('${region.name}', 99, ${end})`))).toBe('HR006')
    expect(await codeOf(operator.query(`select homeregion.grant_lease('region-z', 99, now())`))).toBe('HR006')
  })

  test('a transaction that would be prepared is refused; one whose constraints were checked early is what the margin is for', async () => {
    const [key, early] = [await newKey(), await newKey()]
    await grant(LEASE.durationMs)
    for (const statement of ["prepare transaction 'p1'", "/* x */ Prepare\n TRANSACTION 'p2'", "--x\rprepare --y\rtransaction 'p3'"]) {
      await w.query('begin')
      await w.query(INSERT, [key])
      expect(await codeOf(w.query(statement))).toBe('HR004')
      await w.query('rollback')
    }
    // Words of a business text are no statement.
    await w.query('begin')
    await w.query(INSERT, [key])
    await w.query("select 'to prepare transaction 7'; commit")
    expect((await w.query('select from account where tenant_id = $1', [key])).rowCount).toBe(1)
    await w.query('begin')
    await w.query(INSERT, [early])
    await w.query('set constraints all immediate')
    await grant(1)
    await overAt()
    expect(await codeOf(w.query('commit'))).toBeNull()
  })

  test('a planned fence writes its barrier after the end too, and a relay marks what it published', async () => {
    const key = await newKey()
    await grant(LEASE.durationMs)
    await w.query(
      `insert into outbox (event_id, tenant_id, aggregate_type, aggregate_id, event_type, source_region, home_region, owner_epoch, aggregate_version, occurred_at)
       values ($1, $2, 't', 'a', 'x', $3, $3, 1, 1, now())`,
      [randomUUID(), key, region.name],
    )
    await grant(1)
    await overAt()
    await db.drain(key, 1, 1)
    const barrier = randomUUID()
    expect(await db.fence(key, 1, 1, barrier)).toMatchObject({ state: 'FENCED', barrierEventId: barrier })
    const relay = await f.login('app_relay')
    expect((await relay.query('update outbox set published_at = now() where tenant_id = $1', [key])).rowCount).toBe(2)
  })

  test('a heartbeat goes through the outbox under a key of its own, lease or not, and never through a fenced region', async () => {
    const id = randomUUID()
    await pulse.heartbeat(id)
    const { rows } = await w.query('select tenant_id, event_type, source_region from outbox where event_id = $1', [id])
    expect(rows).toEqual([
      { tenant_id: `homeregion.heartbeat.${region.name}`, event_type: 'homeregion.heartbeat', source_region: region.name },
    ])
    expect(await write(w, `homeregion.heartbeat.${region.name}`)).toBe('HR003')
    expect(await codeOf(w.query('select homeregion.heartbeat($1)', [randomUUID()]))).toBe('42501')
    expect((await db.homeKeys({ after: null, limit: 1000 })).map(k => k.key)).not.toContain(`homeregion.heartbeat.${region.name}`)
    expect((await pulse.unpublished())?.count).toBeGreaterThan(0)
    const admin = await f.login('postgres')
    await admin.query(`insert into inbox (event_id, tenant_id, owner_epoch, event_type) values ($1, $2, 1, 'x')`, [id, 'k'])
    expect(await pulse.inboxHas([id, randomUUID()])).toEqual([id])
    await admin.query(`select homeregion.fence_region($1, 'boundary', 'test', 'test', null)`, [region.name])
    await expect(pulse.heartbeat(randomUUID())).rejects.toMatchObject({ code: 'check-refused' })
    await admin.query(
      `select homeregion.lift_region($1, 'boundary', (select asked from homeregion.fence where region = $1 and name = 'boundary'))`,
      [region.name],
    )
  })

  test('keep: the same grants, and no refusal at the end; the check at commit is gone', async () => {
    const key = await newKey()
    await install('keep')
    try {
      await grant(1)
      await overAt()
      expect(await write(w, key)).toBeNull()
      expect((await w.query(`select from pg_trigger where tgname = 'zzz_homeregion_lease'`)).rowCount).toBe(0)
      await w.query('begin')
      await w.query(INSERT, [await newKey()])
      expect(await codeOf(w.query("prepare transaction 'kept'"))).toBeNull()
      await w.query("rollback prepared 'kept'")
    } finally {
      await install('stop')
    }
    expect(await write(w, key)).toBe('HR004')
  })
})
