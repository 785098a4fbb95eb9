import { randomUUID } from 'node:crypto'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { freePorts } from '../../sandbox/free-ports.ts'
import { APP_DATABASE } from '../../sandbox/layout.ts'
import type { PostgresVersion } from '../../sandbox/postgres-binaries.ts'
import { createBoundaryFence } from '../../src/adapters/postgres-region/fences/boundary.ts'
import { provedOnEveryPath } from '../../src/adapters/postgres-region/fences/path-proof.ts'
import { createReadOnlyFence } from '../../src/adapters/postgres-region/fences/read-only.ts'
import { createRegionDatabase } from '../../src/adapters/postgres-region/region-database.ts'
import { systemClock } from '../../src/adapters/system/clock.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { Endpoint, RegionConfig } from '../../src/domain/config.ts'
import type { Observation } from '../../src/domain/evidence.ts'
import type { FaultPoint, RegionDatabase } from '../../src/domain/ports.ts'
import { fenceHolds } from '../../src/engine/checks/fence-holds.ts'
import { fenceCoversWriters } from '../../src/engine/checks/regions.ts'
import type { CheckSubject } from '../../src/engine/context.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { startSessionPooler } from '../rig/session-pooler.ts'
import { createFakeEngine } from '../unit/engine-fixture.ts'
import { type RegionFixture, secrets, startRegion } from './boundary-fixture.ts'
import { type StandbyFixture, startStandby } from './standby-fixture.ts'
import { startTcpGate } from './tcp-gate.ts'

const PASSWORD = await secrets.read()
const insert = `insert into account (tenant_id, account_id, version, billing_address) values ($1, 'a', 1, 'x')`

describe.each<PostgresVersion>([15, 18])('the fence on every path, PostgreSQL %i', version => {
  let f: RegionFixture
  let keys = 0
  const ends: (() => Promise<void>)[] = []
  beforeAll(async () => {
    f = await startRegion({ version })
  })
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end()
  })
  afterAll(async () => await f?.stop())

  /** The region as configured with these endpoints. */
  function withEndpoints(endpoints: readonly Endpoint[], change: Partial<RegionConfig> = {}): RegionDatabase {
    const region = { ...f.region, ...change, database: { ...f.region.database, endpoints } }
    const db = createRegionDatabase(region, f.config, secrets)
    ends.push(async () => await db.close())
    return db
  }

  async function pooler(mode: 'session' | 'transaction', port = f.server.port) {
    const started = await startSessionPooler({ target: { port }, mode })
    ends.push(async () => await started.stop())
    return started
  }

  async function standby(name: string, slot?: string): Promise<StandbyFixture> {
    const started = await startStandby(f.server, { version, name, ...(slot === undefined ? {} : { slot }) })
    ends.push(async () => await started.stop())
    return started
  }

  async function newKey(): Promise<string> {
    keys += 1
    const key = `path-${keys}`
    await f.db.register([{ key, homeRegion: 'region-a', epoch: 1 }])
    return key
  }

  function checks(db: RegionDatabase, key: string) {
    const engine = createFakeEngine([db], {}, systemClock)
    const move = { key, source: 'region-a', target: 'region-b', epoch: 1, seq: 1 }
    const memory = new Map<string, unknown>()
    const subject = (barrierEventId: string | null): CheckSubject => ({
      moves: [move],
      move,
      barrierEventId,
      startedMonotonicMs: 0,
      standing: [],
      memory,
    })
    return {
      /** What the preflight says of the endpoints and standbys; the rest of the audit is another test's. */
      before: async (): Promise<readonly string[]> => {
        const seen = await fenceCoversWriters(
          engine,
          { ...subject(null), memory: new Map() },
          { check: 'fence-covers-writers', parameters: {} },
        )
        const problems = (seen.facts?.['problems'] as readonly string[] | undefined) ?? (seen.verdict === 'unknown' ? [seen.observed] : [])
        return problems.filter(p => /endpoint|standby|address/.test(p))
      },
      after: async (barrier: string | null): Promise<Observation> =>
        await fenceHolds(engine, subject(barrier), { check: 'fence-holds', parameters: {} }),
    }
  }

  async function fence(key: string): Promise<string> {
    const barrier = randomUUID()
    await f.db.drain(key, 1, 1)
    await f.db.fence(key, 1, 1, barrier)
    return barrier
  }

  async function eventually(look: () => Promise<Observation>, verdict: Observation['verdict']): Promise<Observation> {
    const end = performance.now() + 20_000
    for (;;) {
      const seen = await look()
      if (seen.verdict === verdict || performance.now() > end) return seen
    }
  }

  const poolerAt = (port: number): Endpoint => ({ name: 'pool', kind: 'pooler', host: '127.0.0.1', port, database: null })
  const standbyAt = (port: number): Endpoint => ({ name: 'replica', kind: 'standby', host: '127.0.0.1', port, database: null })

  test.each(['session', 'transaction'] as const)(
    'a %s pooler admits the writers before the fence and refuses them after it',
    async mode => {
      const pool = await pooler(mode)
      const db = withEndpoints([poolerAt(pool.port)])
      const key = await newKey()
      const see = checks(db, key)
      expect(await see.before()).toEqual([])
      const [open] = await db.probeEndpoints(key, 1)
      expect(open?.probes.map(p => [p.outcome, p.role])).toEqual(Array(4).fill(['admitted', 'app_writer']))
      const barrier = await fence(key)
      const held = await see.after(barrier)
      expect(held, held.observed).toMatchObject({ verdict: 'pass' })
      expect(held.observed).toContain('endpoint pool refuses every writer')
      const [closed] = await db.probeEndpoints(key, 1)
      expect(closed?.probes.map(p => p.sqlstate)).toEqual(Array(4).fill('HR001'))
    },
  )

  test('a pooler that hides the role is refused before the drain, and proves no fence', async () => {
    const pool = await pooler('session')
    pool.hideAs({ user: 'app_inbox', password: PASSWORD })
    const key = await newKey()
    const see = checks(withEndpoints([poolerAt(pool.port)]), key)
    expect(await see.before()).toEqual([
      expect.stringContaining('endpoint pool gives app_writer a session of app_inbox: it hides the role'),
    ])
    expect((await see.after(await fence(key))).verdict).toBe('fail')
  })

  test("a writer's own address that hides the role is refused before the drain", async () => {
    const pool = await startSessionPooler({
      target: { port: f.server.port },
      mode: 'session',
      hideAs: { user: 'app_inbox', password: PASSWORD },
    })
    ends.push(async () => await pool.stop())
    const url = `postgres://app_writer@127.0.0.1:${pool.port}/${APP_DATABASE}`
    const writers = [{ role: 'app_writer', url, password: { env: 'PASSWORD' } }]
    const db = createRegionDatabase({ ...f.region, database: { ...f.region.database, writers } }, f.config, secrets)
    ends.push(async () => await db.close())
    expect(await checks(db, await newKey()).before()).toEqual([
      expect.stringContaining("region-a: its database's address gives app_writer a session of app_inbox: it hides the role"),
    ])
  })

  test('an endpoint that nothing answers at is refused before the drain, and never passes', async () => {
    const [closed = 1] = await freePorts(1)
    // Takes connections, and says nothing.
    const gate = await startTcpGate({ port: closed })
    ends.push(async () => await gate.stop())
    const key = await newKey()
    const endpoints = [poolerAt(closed), { ...standbyAt(gate.port), name: 'mute' }]
    const region = { ...f.region, database: { ...f.region.database, endpoints } }
    const db = createRegionDatabase(region, { ...f.config, policy: { ...f.config.policy, callTimeoutMs: 1000 } }, secrets)
    ends.push(async () => await db.close())
    const see = checks(db, key)
    expect(await see.before()).toEqual([
      expect.stringMatching(/endpoint pool: .*cannot be reached/),
      expect.stringMatching(/endpoint mute: .*cannot be reached/),
    ])
    expect(await see.after(await fence(key))).toMatchObject({
      verdict: 'unknown',
      observed: expect.stringMatching(/endpoint pool: .*mute/) as string,
    })
  })

  test('what is asked about the paths costs a region without any no round trip', async () => {
    const gate = await startTcpGate({ port: f.server.port })
    ends.push(async () => await gate.stop())
    const key = await newKey()
    const barrier = await fence(key)
    const url = `postgres://homeregion_operator@127.0.0.1:${gate.port}/${APP_DATABASE}`
    const region = { ...f.region, database: { ...f.region.database, operator: { url, password: { env: 'PASSWORD' } } } }
    const db = createRegionDatabase(region, f.config, secrets)
    ends.push(async () => await db.close())
    const look = async () =>
      await Promise.all([db.read(key), db.facts(), db.position(key, barrier), db.probeEndpoints(key, 1), db.standbys(null)])
    await look()
    gate.reset()
    const [, , position, endpoints, report] = await look()
    expect(gate.turns()).toBe(1)
    expect(endpoints).toEqual([])
    expect(report).toEqual({ lsn: position.lsn, standbys: [] })
  })

  test('a standby that has not flushed the fence keeps it unproved until it has, and a failover to it does not lift the fence', async () => {
    const copy = await standby('copy')
    const db = withEndpoints([])
    const key = await newKey()
    const see = checks(db, key)
    expect(await see.before()).toEqual([])
    await copy.holdWal()
    const barrier = await fence(key)
    const late = await see.after(barrier)
    expect(late).toMatchObject({ verdict: 'unknown', observed: expect.stringContaining('standby copy at 127.0.0.1 has flushed') as string })
    // On a busy primary: the mark stays where the fence is.
    await f.db.register([{ key: `busy-${key}`, homeRegion: 'region-a', epoch: 1 }])
    copy.releaseWal()
    const held = await eventually(async () => await see.after(barrier), 'pass')
    expect(held, held.observed).toMatchObject({ verdict: 'pass', observed: expect.stringContaining('flushed by standby copy') as string })
    await copy.promote()
    await expect(writeAt(copy.server.port, key)).rejects.toMatchObject({ code: 'HR001' })
  })

  test('a standby that went away before it had flushed the fence is missed', async () => {
    const copy = await standby('lost')
    const key = await newKey()
    const see = checks(withEndpoints([]), key)
    await copy.holdWal()
    const barrier = await fence(key)
    expect((await see.after(barrier)).verdict).toBe('unknown')
    await copy.kill()
    const gone = await eventually(async () => {
      const seen = await see.after(barrier)
      return seen.observed.includes('went away') ? { ...seen, verdict: 'pass' } : seen
    }, 'pass')
    expect(gone.observed).toContain('standby lost at 127.0.0.1 went away before it had flushed the fence')
  })

  test('a standby whose replay is paused has the fence on its disk: as an endpoint it must show it, promoted it refuses', async () => {
    const copy = await standby('paused')
    const admin = await copy.admin()
    await admin.query('select pg_wal_replay_pause()')
    const key = await newKey()
    const [undeclared, declared] = [checks(withEndpoints([]), key), checks(withEndpoints([standbyAt(copy.server.port)]), key)]
    expect(await declared.before()).toEqual([expect.stringContaining('endpoint replica does not know the key')])
    const barrier = await fence(key)
    const held = await eventually(async () => await undeclared.after(barrier), 'pass')
    expect(held, held.observed).toMatchObject({ verdict: 'pass' })
    expect(await declared.after(barrier)).toMatchObject({
      verdict: 'unknown',
      observed: expect.stringContaining('not the fence yet') as string,
    })
    await copy.promote()
    await expect(writeAt(copy.server.port, key)).rejects.toMatchObject({ code: 'HR001' })
  })

  test('a declared standby must show the fence; promoted, it stops the run before activation and is held to its refusals after it', async () => {
    const copy = await standby('replica')
    const key = await newKey()
    const see = checks(withEndpoints([standbyAt(copy.server.port)]), key)
    const ready = await eventually(async () => {
      const problems = await see.before()
      return { verdict: problems.length === 0 ? 'pass' : 'fail', observed: problems.join(), required: '', observer: '' }
    }, 'pass')
    expect(ready.observed).toBe('')
    const barrier = await fence(key)
    const held = await eventually(async () => await see.after(barrier), 'pass')
    expect(held.observed).toContain('endpoint replica is in recovery and shows the fence')
    await copy.promote()
    expect(await see.after(barrier)).toMatchObject({
      verdict: 'fail',
      observed: expect.stringContaining(
        'endpoint replica was promoted (not in recovery): it shows FENCED at region-a, epoch 1, fenced there too',
      ) as string,
    })
    expect(await see.before()).toEqual([expect.stringContaining('declared as a standby and is not in recovery')])
    await f.db.follow(key, 'region-b', 2, 1)
    const watched = await checks(withEndpoints([standbyAt(copy.server.port)]), key).after(null)
    expect(watched, watched.observed).toMatchObject({
      verdict: 'pass',
      observed: expect.stringContaining('was promoted and refuses') as string,
    })
  })

  test('a standby promoted without the fence admits writes, and is named', async () => {
    const copy = await standby('replica')
    const key = await newKey()
    const admin = await copy.admin(APP_DATABASE)
    await expect
      .poll(async () => (await admin.query('select from homeregion.ownership where key = $1', [key])).rowCount, { timeout: 20_000 })
      .toBe(1)
    await copy.promote()
    const see = checks(withEndpoints([standbyAt(copy.server.port)]), key)
    expect(await see.after(await fence(key))).toMatchObject({
      verdict: 'fail',
      observed: expect.stringMatching(
        /endpoint replica ADMITTED: app_writer wrote public.account.*it was promoted, and shows ACTIVE at region-a/,
      ) as string,
    })
    // A pooler that leads there is as wrong, before the drain and after it.
    const pool = await pooler('session', copy.server.port)
    expect((await checks(withEndpoints([poolerAt(pool.port)]), key).before()).join()).toContain('does it lead to another server?')
  })

  test('a standby declared as a pooler is refused before the drain, and proves nothing', async () => {
    const copy = await standby('replica')
    const key = await newKey()
    const see = checks(withEndpoints([poolerAt(copy.server.port)]), key)
    expect(await see.before()).toEqual([expect.stringContaining('endpoint pool is declared as a pooler and leads to a standby')])
    expect((await see.after(await fence(key))).verdict).toBe('fail')
  })

  test('a standby that is away is known by its slot, refused before the drain, and missed by the fence unless it is given up with a reason', async () => {
    const copy = await standby('away', 'away_slot')
    await copy.server.stop()
    const key = await newKey()
    const see = checks(withEndpoints([]), key)
    const admin = await f.login('postgres')
    await expect
      .poll(async () => (await admin.query('select from pg_replication_slots where active')).rowCount, { timeout: 20_000 })
      .toBe(0)
    expect(await see.before()).toEqual([expect.stringContaining('the standby of replication slot away_slot is away')])
    const barrier = await fence(key)
    expect(await see.after(barrier)).toMatchObject({ verdict: 'unknown', observed: expect.stringContaining('away_slot is away') as string })
    const given = { acceptedWriters: [{ kind: 'standby-slot', subject: 'away_slot', reason: 'scrapped' }] }
    const accepted = await checks(withEndpoints([], given), key).after(barrier)
    expect(accepted, accepted.observed).toMatchObject({ verdict: 'pass' })
    await admin.query(`select pg_drop_replication_slot('away_slot')`)
  })

  test('the fences of a whole region are proved through a pooler and on a standby, and not while the standby lags', async () => {
    const copy = await standby('replica')
    const pool = await pooler('transaction')
    await newKey()
    const database = { ...f.region.database, endpoints: [poolerAt(pool.port), standbyAt(copy.server.port)] }
    const admin = decodeURIComponent(new URL(f.server.adminUrl).password)
    const both = createSecrets({ PASSWORD, ADMIN: admin })
    const region = { ...f.region, database }
    const none: FaultPoint = async () => undefined
    const fences = provedOnEveryPath(
      [
        createBoundaryFence(region, f.config, both, none),
        createReadOnlyFence(region, { kind: 'read-only', name: 'read-only' }, f.config, both, none),
      ],
      region,
      f.config,
      both,
      systemClock,
    )
    ends.push(async () => void (await Promise.all(fences.map(async fence => await fence.close()))))
    const cause = { reason: 'test', by: 'test', runId: null }
    const elsewhere = (seen: readonly Observation[]) =>
      seen.filter(o => /endpoint \w+$/.test(o.observer) || o.required.includes('standby')).map(o => [o.observer, o.verdict])
    for (const fence of fences) {
      await fence.apply(cause)
      const proof = await fence.verify()
      expect(elsewhere(proof), JSON.stringify(proof)).toEqual([
        ['region-a database', 'pass'],
        ['region-a endpoint pool', 'pass'],
        ['region-a endpoint replica', 'pass'],
      ])
      await liftStanding(fence, cause)
      expect(elsewhere(await fence.verify())).toEqual([])
      // Given time, the standby has the lift as well; then it stops listening.
      await copy.holdWal()
      await fence.apply(cause)
      expect(elsewhere(await fence.verify())).toEqual([
        ['region-a database', 'unknown'],
        ['region-a endpoint pool', 'pass'],
        ['region-a endpoint replica', 'unknown'],
      ])
      copy.releaseWal()
      await liftStanding(fence, cause)
    }
  })

  async function writeAt(port: number, key: string): Promise<void> {
    const client = new pg.Client({ host: '127.0.0.1', port, database: APP_DATABASE, user: 'app_writer', password: PASSWORD })
    client.on('error', () => undefined)
    await client.connect()
    try {
      await client.query(insert, [key])
    } finally {
      await client.end()
    }
  }
})
