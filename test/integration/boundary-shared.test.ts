import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { installControlPlane } from '../../src/adapters/control-plane/install.ts'
import { installBoundary } from '../../src/adapters/postgres-region/install.ts'
import type { OwnershipChange, RunLease } from '../../src/domain/journal.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import { HOLDER, OTHER, only, permitFor, planFor } from './control-plane-fixture.ts'
import { type SharedFixture, startShared } from './shared-fixture.ts'

const INSERT = `insert into account (tenant_id, account_id, version, billing_address) values ($1, gen_random_uuid()::text, 1, 'x')`

const LEVELS = ['read committed', 'repeatable read'] as const
const LABELLED = `insert into account (tenant_id, account_id, version, billing_address)
  values ('busy', 'w-' || gen_random_uuid(), 1, $1 || ' ' || current_setting('homeregion.epoch'))`

let f: SharedFixture
let writerA: pg.Client
let writerB: pg.Client
let admin: pg.Client
beforeAll(async () => {
  f = await startShared()
  await installControlPlane({ config: f.config, secrets: f.secrets, dryRun: false })
  await install()
  admin = await f.login('postgres')
  writerA = await f.login('writer_a')
  writerB = await f.login('writer_b')
})
afterAll(async () => await f?.stop())

const install = async (config = f.config, region = f.regionA) =>
  await installBoundary({ config, region, secrets: f.secrets, dryRun: false })

/** SQLSTATE of a write that commits when it is admitted, or null. */
async function write(client: pg.Client, key: string, epoch?: number): Promise<string | null> {
  if (epoch !== undefined) await client.query(`select set_config('homeregion.epoch', $1, false)`, [String(epoch)])
  try {
    await client.query(INSERT, [key])
    return null
  } catch (error) {
    return (error as pg.DatabaseError).code ?? 'no code'
  } finally {
    if (epoch !== undefined) await client.query('reset homeregion.epoch')
  }
}

const both = async (key: string) => ({ a: await write(writerA, key), b: await write(writerB, key) })

async function registered(key: string, homeRegion = 'region-a'): Promise<OwnershipRecord> {
  return await only(f.store.register([{ key, homeRegion }]))
}

async function step(lease: RunLease, expected: OwnershipRecord, transition: OwnershipChange['transition']) {
  return await only(f.store.commit(lease, { ownership: [{ transition, expected, target: 'region-b' }] }))
}

/** Drained on record, fenced at the boundary and on record, catching up. */
async function readyToActivate(from: OwnershipRecord): Promise<{ lease: RunLease; record: OwnershipRecord }> {
  const lease = await f.store.openRun(planFor([from], 'region-b'), HOLDER, null)
  const drained = await step(lease, from, 'drain')
  await f.a.fence(from.key, from.epoch, lease.token, randomUUID())
  return { lease, record: await step(lease, await step(lease, drained, 'fence'), 'catch-up') }
}

async function activate(lease: RunLease, record: OwnershipRecord): Promise<OwnershipRecord> {
  const id = randomUUID()
  return await only(
    f.store.commit(lease, {
      starts: [{ id, key: record.key, step: 'activate', action: 'activate' }],
      activation: { expected: record, permit: permitFor(lease, record, id, ['fence-holds']) },
    }),
  )
}

describe('the guard of a shared database', () => {
  test("admits the home region's writer alone, and a key's home is not the session's to say", async () => {
    await registered('k1')
    expect(await both('k1')).toEqual({ a: null, b: 'HR001' })
    expect(await write(writerA, 'nobody-knows-me')).toBe('HR003')
    const strangers = await Promise.all([f.login('writer_nobody'), f.login('app_inbox'), f.login('writer_both')])
    for (const stranger of [...strangers, admin]) expect(await write(stranger, 'k1')).toBe('HR001')
    await admin.query('set session_replication_role = replica')
    expect(await write(admin, 'k1')).toBe('HR001')
    await admin.query('reset session_replication_role')
    const forger = strangers[2]
    await forger.query('set role writer_a')
    for (const name of ['region', 'local_region', 'session_region', 'writer_region', 'probe'])
      await forger.query(`select set_config($1, 'region-a', false)`, [`homeregion.${name}`])
    expect(await write(forger, 'k1')).toBe('HR001')
    await writerB.query(`set homeregion.region = 'region-a'; set role app_writer`)
    expect(await write(writerB, 'k1')).toBe('HR001')
    await writerB.query('reset all; reset role')
  })

  test('refuses an epoch that is not the current one', async () => {
    await registered('k2')
    expect([await write(writerA, 'k2', 1), await write(writerA, 'k2', 2), await write(writerB, 'k2', 1)]).toEqual([null, 'HR002', 'HR001'])
    await f.a.read('k2')
    await admin.query(`select homeregion.require_epoch('k2', true)`)
    expect([await write(writerA, 'k2'), await write(writerA, 'k2', 1)]).toEqual(['HR002', null])
  })

  test('refuses a snapshot that is older than the drain, at the old home and at the new one', async () => {
    const key = await registered('k3')
    for (const w of [writerA, writerB]) await w.query('begin isolation level repeatable read; select 1 from account')
    const { lease, record } = await readyToActivate(key)
    await activate(lease, record)
    expect([await write(writerA, 'k3'), await write(writerB, 'k3')]).toEqual(['40001', 'HR001'])
    for (const w of [writerA, writerB]) await w.query('rollback')
    expect(await both('k3')).toEqual({ a: 'HR001', b: null })
  })

  test('lets a transaction that had written finish, and the fence waits for it', async () => {
    const key = await registered('k4')
    const lease = await f.store.openRun(planFor([key], 'region-b'), HOLDER, null)
    await writerA.query('begin')
    await writerA.query(INSERT, ['k4'])
    await step(lease, key, 'drain')
    await writerA.query(INSERT, ['k4'])
    expect(await f.a.inFlight('k4', 10)).toMatchObject([{ role: 'writer_a', state: 'idle in transaction' }])
    await expect(f.a.fence('k4', 1, lease.token, randomUUID())).rejects.toMatchObject({ code: 'check-refused', retriable: true })
    await writerA.query('commit')
    expect(await f.a.inFlight('k4', 1000)).toEqual([])
    expect(await write(writerA, 'k4')).toBe('HR001')
    expect(await f.a.fence('k4', 1, lease.token, randomUUID())).toMatchObject({ state: 'FENCED' })
  })
})

describe('the record and the boundary of a shared database', () => {
  test('change in one commit: until the activation commits nobody writes, from it on the target alone', async () => {
    const { lease, record } = await readyToActivate(await registered('k5'))
    const holder = await f.login('postgres')
    // The last lock an activation takes: it has handed ownership over by then, and cannot commit.
    await holder.query('begin; select 1 from homeregion_control.audit_head for update')
    const activation = activate(lease, record)
    const waits = `select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%audit_head%' and pid <> pg_backend_pid()`
    expect(await waitUntil(async () => (await admin.query(waits)).rowCount === 1, 4000)).toBe(true)
    expect(await both('k5')).toEqual({ a: 'HR001', b: 'HR001' })
    expect(await f.b.read('k5')).toMatchObject({ homeRegion: 'region-a', epoch: 1, state: 'FENCED', writable: false })
    await holder.query('commit')
    expect(await activation).toMatchObject({ homeRegion: 'region-b', epoch: 2, state: 'ACTIVE' })
    expect(await both('k5')).toEqual({ a: 'HR001', b: null })
    // What the engine asks for afterwards is found done, and is done once.
    expect(await f.b.open('k5', 2, lease.token)).toMatchObject({ homeRegion: 'region-b', epoch: 2, writable: true })
    expect(await f.a.follow('k5', 'region-b', 2, lease.token)).toMatchObject({ homeRegion: 'region-b', writable: false })
  })

  test('the record cannot say FENCED before the fence was taken, and nothing but the record opens a key', async () => {
    const key = await registered('k6')
    const lease = await f.store.openRun(planFor([key], 'region-b'), HOLDER, null)
    await expect(f.a.drain('k6', 1, lease.token)).rejects.toMatchObject({ code: 'epoch-moved' })
    const drained = await step(lease, key, 'drain')
    expect(await f.a.drain('k6', 1, lease.token)).toMatchObject({ state: 'DRAINING', writable: false })
    await expect(step(lease, drained, 'fence')).rejects.toMatchObject({ code: 'epoch-moved' })
    await expect(f.a.open('k6', 1, lease.token)).rejects.toMatchObject({ code: 'epoch-moved' })
    await expect(f.b.open('k6', 2, lease.token)).rejects.toMatchObject({ code: 'epoch-moved' })
    expect(await both('k6')).toEqual({ a: 'HR001', b: 'HR001' })
    const back = await step(lease, drained, 'resume-drained')
    expect(await f.a.open('k6', back.epoch, lease.token)).toMatchObject({ epoch: 1, writable: true })
    expect(await both('k6')).toEqual({ a: null, b: 'HR001' })
  })

  test('a drain is not taken back over a fence that landed; the way back is a new epoch', async () => {
    const key = await registered('k7')
    const lease = await f.store.openRun(planFor([key], 'region-b'), HOLDER, null)
    const drained = await step(lease, key, 'drain')
    await f.a.fence('k7', 1, lease.token, randomUUID())
    await expect(step(lease, drained, 'resume-drained')).rejects.toMatchObject({ code: 'epoch-moved' })
    const back = await step(lease, await step(lease, drained, 'fence'), 'resume-fenced')
    expect(back).toMatchObject({ homeRegion: 'region-a', epoch: 2 })
    expect([await write(writerA, 'k7', 1), await write(writerA, 'k7', 2), await write(writerB, 'k7', 2)]).toEqual(['HR002', null, 'HR001'])
  })

  test('a key that the boundary knows without the record cannot be registered over it', async () => {
    await admin.query(`insert into homeregion.ownership (key, home_region, epoch, state) values ('k9', 'region-b', 7, 'ACTIVE')`)
    await expect(registered('k9')).rejects.toThrow(/'k9' is ACTIVE at region-b, epoch 7/)
    expect(await f.store.ownership(['k9'])).toEqual([])
  })

  test('a superseded operator is refused at both', async () => {
    const key = await registered('k8')
    const lease = await f.store.openRun(planFor([key], 'region-b'), HOLDER, null)
    const drained = await step(lease, key, 'drain')
    const taken = await f.store.takeRun(lease.runId, OTHER, true)
    expect(await f.a.claim('k8', { homeRegion: 'region-a', epoch: 1 }, taken.token)).toMatchObject({ token: taken.token })
    await expect(f.a.fence('k8', 1, lease.token, randomUUID())).rejects.toMatchObject({ code: 'superseded' })
    await expect(step(lease, drained, 'resume-drained')).rejects.toMatchObject({ code: 'superseded' })
    await step(taken, drained, 'resume-drained')
    expect(await both('k8')).toEqual({ a: null, b: 'HR001' })
  })
})

describe('under load', () => {
  test('no row is written between a fence and the next activation, and none by a region that is not home', async () => {
    let record = await registered('busy')
    const writers = await Promise.all(
      ['writer_a', 'writer_a', 'writer_b', 'writer_b'].map(async (role, i) => ({
        role,
        isolation: LEVELS[i % 2],
        client: await f.login(role),
      })),
    )
    let stop = false
    let refused = 0
    const load = writers.map(async ({ role, isolation, client }) => {
      while (!stop) {
        try {
          await client.query(`begin isolation level ${isolation}; select 1 from account`)
          // Presented, and carried by the row: one that is written proves that it was current.
          await client.query(`select set_config('homeregion.epoch', epoch::text, true) from homeregion.read('busy')`)
          await client.query(LABELLED, [role])
          await client.query('commit')
        } catch (error) {
          expect((error as pg.DatabaseError).code).toMatch(/^(HR00[12]|40001)$/)
          refused += 1
          await client.query('rollback')
        }
      }
    })
    const rows = async () =>
      (await admin.query<{ n: number }>(`select count(*)::int as n from account where tenant_id = 'busy'`)).rows[0]?.n ?? 0
    const homes = ['region-b', 'region-a', 'region-b', 'region-a', 'region-b', 'region-a', 'region-b', 'region-a']
    for (const target of homes) {
      const before = await rows()
      expect(await waitUntil(async () => (await rows()) > before, 5000)).toBe(true)
      const lease = await f.store.openRun(planFor([record], target), HOLDER, null)
      const drained = await only(f.store.commit(lease, { ownership: [{ transition: 'drain', expected: record, target }] }))
      const source = record.homeRegion === 'region-a' ? f.a : f.b
      expect(await waitUntil(async () => (await source.inFlight('busy', 500)).length === 0, 5000)).toBe(true)
      await source.fence('busy', record.epoch, lease.token, randomUUID())
      const fenced = await rows()
      const caught = await step(lease, await step(lease, drained, 'fence'), 'catch-up')
      expect(await rows()).toBe(fenced)
      record = await activate(lease, caught)
      await f.store.commit(lease, { keyOutcomes: [{ key: 'busy', outcome: 'moved' }], runState: 'DONE' })
    }
    stop = true
    await Promise.all(load)
    const { rows: labels } = await admin.query<{ label: string }>(
      `select distinct billing_address as label from account where tenant_id = 'busy' and account_id like 'w-%'`,
    )
    const home = (epoch: number) => (epoch % 2 === 1 ? 'writer_a' : 'writer_b')
    expect(labels.map(l => l.label).filter(l => !l.startsWith(home(Number(l.split(' ')[1]))))).toEqual([])
    expect(labels.length).toBeGreaterThanOrEqual(homes.length)
    expect(refused).toBeGreaterThan(100)
  })
})

describe('taking the boundary of a shared database away', () => {
  test('is seen: the tie to the control plane, and logins of another region', async () => {
    await admin.query('alter table homeregion_control.ownership disable trigger zzz_homeregion_authority')
    await admin.query(`update homeregion.writer_region set region = 'region-a' where role = 'writer_b'`)
    expect((await f.b.facts()).guardProblems).toEqual([
      'homeregion_control.ownership: trigger zzz_homeregion_authority is missing or disabled',
      'login writer_b writes for region-a by the boundary, for region-b by the configuration',
    ])
    expect((await install(f.config, f.regionB)).applied).toBe(true)
    expect((await f.b.facts()).guardProblems).toEqual([])
  })

  test('cannot be done by whoever writes: neither the tables nor the functions of the boundary are theirs', async () => {
    for (const sql of [
      `update homeregion.writer_region set region = 'region-a'`,
      `delete from homeregion.ownership`,
      `select homeregion.take_over(null)`,
      `select * from homeregion.open('k6', 1, 99)`,
    ])
      await expect(writerB.query(sql)).rejects.toMatchObject({ code: '42501' })
    await admin.query(
      'create table public.forged (like homeregion_control.ownership including defaults); alter table public.forged owner to app_owner',
    )
    await admin.query('set role app_owner')
    const forge = 'create trigger forge after insert on public.forged for each row execute function homeregion.follow_authority()'
    await expect(admin.query(forge)).rejects.toMatchObject({ code: '42501' })
    await admin.query('reset role')
    await admin.query(forge)
    const values = `('k6', 1, 'ACTIVE', 'region-b', 9, '', '')`
    await expect(
      admin.query(`insert into public.forged (key, seq, state, home_region, epoch, target_region, run_id) values ${values}`),
    ).rejects.toMatchObject({ code: 'HR006' })
  })
})
