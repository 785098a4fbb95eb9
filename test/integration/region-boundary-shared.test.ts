import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { installControlPlane } from '../../src/adapters/control-plane/install.ts'
import { createBoundaryFence } from '../../src/adapters/postgres-region/fences/boundary.ts'
import { installBoundary } from '../../src/adapters/postgres-region/install.ts'
import type { Fence } from '../../src/domain/fence.ts'
import type { OwnershipChange, RunLease } from '../../src/domain/journal.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { HOLDER, only, permitFor, planFor } from './control-plane-fixture.ts'
import { type SharedFixture, startShared } from './shared-fixture.ts'

const INSERT = `insert into account (tenant_id, account_id, version, billing_address) values ($1, gen_random_uuid()::text, 1, 'x')`
const CAUSE = { reason: 'region-b is emptied', by: 'op', runId: null }

let f: SharedFixture
let fence: Fence
let writerA: pg.Client
let writerB: pg.Client
let keys = 0
beforeAll(async () => {
  f = await startShared()
  await installControlPlane({ config: f.config, secrets: f.secrets, dryRun: false })
  await installBoundary({ config: f.config, region: f.regionA, secrets: f.secrets, dryRun: false })
  writerA = await f.login('writer_a')
  writerB = await f.login('writer_b')
  fence = boundaryFence(5000)
})
afterEach(async () => {
  for (const client of [writerA, writerB]) await client.query('rollback')
  await liftStanding(fence, CAUSE)
})
afterAll(async () => {
  await fence?.close()
  await f?.stop()
})

function boundaryFence(callTimeoutMs: number): Fence {
  const config = { ...f.config, policy: { ...f.config.policy, callTimeoutMs } }
  return createBoundaryFence(f.regionB, config, f.secrets, () => Promise.resolve())
}

async function write(client: pg.Client, key: string): Promise<string | null> {
  return await client.query(INSERT, [key]).then(
    () => null,
    (error: unknown) => (error as pg.DatabaseError).code ?? 'no code',
  )
}

async function registered(homeRegion: string): Promise<OwnershipRecord> {
  return await only(f.store.register([{ key: `key-${(keys += 1)}`, homeRegion }]))
}

async function step(lease: RunLease, expected: OwnershipRecord, transition: OwnershipChange['transition'], target = 'region-b') {
  return await only(f.store.commit(lease, { ownership: [{ transition, expected, target }] }))
}

describe("one region's fence in a database that regions share", () => {
  test("closes that region's keys alone, and waits for that region's writers alone", async () => {
    const [a, b] = [await registered('region-a'), await registered('region-b')]
    await writerA.query('begin')
    await writerA.query(INSERT, [a.key])
    expect(await fence.apply(CAUSE)).toContain('keys writable: 0')
    expect([await write(writerA, a.key), await write(writerB, b.key)]).toEqual([null, 'HR009'])
    await writerA.query('commit')
    const proof = await fence.verify()
    expect(proof.filter(o => o.verdict !== 'pass')).toEqual([])
    expect(proof.at(-1)?.facts).toMatchObject({ sqlstates: ['HR009'] })
    expect((await f.b.facts()).fencedReason).toBe(CAUSE.reason)
    expect((await f.a.facts()).fencedSince).toBe(null)
    await liftStanding(fence, CAUSE)
    await writerB.query('begin')
    await writerB.query(INSERT, [b.key])
    const short = boundaryFence(300)
    await expect(short.apply(CAUSE)).rejects.toMatchObject({ code: 'fence-failed', fields: { inFlight: [{ role: 'writer_b' }] } })
    await short.close()
  })

  test('a key that is registered there, or given back to it, is not writable before the lift', async () => {
    const key = await registered('region-b')
    const lease = await f.store.openRun(planFor([key], 'region-a'), HOLDER, null)
    const drained = await step(lease, key, 'drain', 'region-a')
    await fence.apply(CAUSE)
    const arrived = await registered('region-b')
    await step(lease, drained, 'resume-drained')
    for (const each of [arrived.key, key.key]) {
      expect(await f.b.read(each)).toMatchObject({ state: 'ACTIVE', writable: false })
      expect(await write(writerB, each)).toBe('HR009')
    }
    await liftStanding(fence, CAUSE)
    expect([await write(writerB, arrived.key), await write(writerB, key.key)]).toEqual([null, null])
  })

  test('nothing is handed over to it: the activation is refused as a whole, and goes through after the lift', async () => {
    const key = await registered('region-a')
    const lease = await f.store.openRun(planFor([key], 'region-b'), HOLDER, null)
    const drained = await step(lease, key, 'drain')
    await f.a.fence(key.key, key.epoch, lease.token, randomUUID())
    const record = await step(lease, await step(lease, drained, 'fence'), 'catch-up')
    await fence.apply(CAUSE)
    const activate = async () => {
      const id = randomUUID()
      return await only(
        f.store.commit(lease, {
          starts: [{ id, key: key.key, step: 'activate', action: 'activate' }],
          activation: { expected: record, permit: permitFor(lease, record, id, ['fence-holds']) },
        }),
      )
    }
    await expect(activate()).rejects.toMatchObject({ code: 'check-refused' })
    expect(await f.store.ownership([key.key])).toMatchObject([{ state: 'CATCH_UP', homeRegion: 'region-a', epoch: 1 }])
    await liftStanding(fence, CAUSE)
    await activate()
    expect(await write(writerB, key.key)).toBe(null)
    await expect(f.b.open(key.key, 2, lease.token)).resolves.toMatchObject({ writable: true })
    await fence.apply(CAUSE)
    await expect(f.b.open(key.key, 2, lease.token)).rejects.toMatchObject({ fields: { sqlstate: 'HR009' } })
  })
})
