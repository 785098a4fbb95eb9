import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { evidenceFor, type Fixture, HOLDER, moveKey, OTHER, only, planFor, startFixture } from './control-plane-fixture.ts'

let fixture: Fixture
/** Two operators on two machines. */
let ada: ControlPlane
let bob: ControlPlane
let keys = 0

beforeAll(async () => {
  fixture = await startFixture()
  ada = fixture.store()
  bob = fixture.store()
})
afterAll(async () => {
  await fixture.stop()
})

async function registered(count: number): Promise<readonly OwnershipRecord[]> {
  const names = Array.from({ length: count }, () => {
    keys += 1
    return { key: `tenant-${keys}`, homeRegion: 'region-a' }
  })
  return await ada.register(names)
}

test('a key that is moved there and back has risen by two epochs, and its log tells each step', async () => {
  const home = await only(ada.register([{ key: 'tenant-there-and-back', homeRegion: 'region-a' }]))
  const there = await moveKey(ada, home, 'region-b')
  expect(there).toMatchObject({ homeRegion: 'region-b', epoch: 2, state: 'ACTIVE', targetRegion: null, changedBy: 'homeregion_operator' })
  const back = await moveKey(ada, there, 'region-a')
  expect(back).toMatchObject({ homeRegion: 'region-a', epoch: 3, state: 'ACTIVE' })
  expect(await only(ada.ownership(['tenant-there-and-back', 'tenant-none']))).toEqual(back)
  const steps = (await ada.history('tenant-there-and-back')).map(row => row.transition)
  const move = ['drain', 'fence', 'catch-up', 'activate']
  expect(steps).toEqual(['register', ...move, ...move])
  expect(await ada.auditBreak()).toBeNull()
})

test('a control plane that takes nothing is called that, by every command that changes something', async () => {
  const [record] = await registered(1)
  const admin = await fixture.raw('admin')
  await admin.query('alter role homeregion_operator set default_transaction_read_only = on')
  const standby = fixture.store()
  const refused = {
    code: 'control-plane-unreachable',
    exit: 'unreachable',
    text: { state: 'Nothing was changed.', next: 'homeregion doctor' },
  }
  try {
    await expect(standby.ownership([record?.key ?? ''])).resolves.toHaveLength(1)
    await expect(standby.register([{ key: 'tenant-standby', homeRegion: 'region-a' }])).rejects.toMatchObject(refused)
    await expect(standby.openRun(planFor(record === undefined ? [] : [record], 'region-b'), HOLDER, null)).rejects.toMatchObject(refused)
    await expect(standby.approve('run-1', 'approved', '', false)).rejects.toMatchObject(refused)
    await expect(standby.noteExile('region-a', 'fenced')).rejects.toMatchObject(refused)
  } finally {
    await admin.query('alter role homeregion_operator reset default_transaction_read_only')
  }
})

test('the second run on a key is told who holds it, since when and under which run', async () => {
  const records = await registered(2)
  const lease = await ada.openRun(planFor(records, 'region-b'), HOLDER, 'maintenance')
  const run = await ada.run(lease.runId)
  const busy = await bob.openRun(planFor(records.slice(1), 'region-b'), OTHER, null).catch((e: unknown) => e)
  expect(busy).toMatchObject({
    code: 'key-busy',
    exit: 'conflict',
    fields: { key: records[1]?.key, runId: lease.runId, startedBy: 'ada@alpha (login homeregion_operator)', startedAt: run?.startedAt },
  })
  expect(run).toMatchObject({ holder: HOLDER, leaseAlive: true, state: 'OPEN', reason: 'maintenance', intent: 'transfer' })
  expect((await bob.runs({ key: records[1]?.key ?? '', limit: 10 })).map(r => r.id)).toEqual([lease.runId])
})

test('of two runs opened at once over the same keys one takes them all, the other none', async () => {
  for (let round = 0; round < 10; round += 1) {
    const records = await registered(20)
    const backwards = records.toReversed()
    const opened = await Promise.allSettled([
      ada.openRun(planFor(records, 'region-b'), HOLDER, null),
      bob.openRun(planFor(backwards, 'region-b'), OTHER, null),
    ])
    expect(opened.filter(o => o.status === 'fulfilled')).toHaveLength(1)
    expect(opened.find(o => o.status === 'rejected')?.reason).toMatchObject({ code: 'key-busy' })
  }
})

test('a second open run on a key is refused to raw SQL as well', async () => {
  const [record] = await registered(1)
  if (record === undefined) throw new Error('not registered')
  await ada.openRun(planFor([record], 'region-b'), HOLDER, null)
  const [other] = await registered(1)
  if (other === undefined) throw new Error('not registered')
  const lease = await bob.openRun(planFor([other], 'region-b'), OTHER, null)
  const raw = await fixture.raw('admin')
  const second = raw.query(
    `insert into homeregion_control.run_key (run_id, key, source, target, epoch, seq) values ($1, $2, 'region-a', 'region-b', 1, 1)`,
    [lease.runId, record.key],
  )
  await expect(second).rejects.toMatchObject({ constraint: 'run_key_one_open' })
})

test('a plan that ownership has left behind, and an unknown key, open nothing', async () => {
  const [record] = await registered(1)
  if (record === undefined) throw new Error('not registered')
  const stale = planFor([record], 'region-b')
  await moveKey(ada, record, 'region-b')
  await expect(bob.openRun(stale, OTHER, null)).rejects.toMatchObject({ code: 'plan-stale', exit: 'conflict' })
  const unknown = planFor([{ ...record, key: 'tenant-unknown' }], 'region-b')
  await expect(bob.openRun(unknown, OTHER, null)).rejects.toMatchObject({ code: 'unknown-key' })
  expect(await bob.runs({ states: ['OPEN'], key: record.key, limit: 1 })).toEqual([])
})

test('registering a registered key registers none of the others', async () => {
  const [record] = await registered(1)
  const both = [
    { key: 'tenant-never', homeRegion: 'region-a' },
    { key: record?.key ?? '', homeRegion: 'region-b' },
  ]
  await expect(ada.register(both)).rejects.toMatchObject({ code: 'key-exists', fields: { keys: [record?.key] } })
  expect(await ada.ownership(['tenant-never'])).toEqual([])
})

test('a living lease is not taken without force; a released and an expired one are', async () => {
  const records = await registered(1)
  const brief = fixture.store({ policy: { ...fixture.config.policy, runLeaseMs: 200 } })
  const lease = await ada.openRun(planFor(records, 'region-b'), HOLDER, null)
  await expect(bob.takeRun(lease.runId, OTHER, false)).rejects.toMatchObject({
    code: 'run-leased',
    fields: { holder: 'ada@alpha pid 100' },
  })
  await ada.release(lease)
  const released = await brief.takeRun(lease.runId, OTHER, false)
  const expired = await vi.waitFor(async () => await ada.takeRun(lease.runId, HOLDER, false), { timeout: 10_000 })
  const forced = await bob.takeRun(lease.runId, OTHER, true)
  expect([released.token > lease.token, expired.token > released.token, forced.token > expired.token]).toEqual([true, true, true])
  await expect(bob.takeRun('run-nowhere', OTHER, true)).rejects.toMatchObject({ code: 'unknown-run' })
})

test('a superseded operator changes nothing, whatever it sends', async () => {
  const records = await registered(1)
  const [record] = records
  if (record === undefined) throw new Error('not registered')
  const old = await ada.openRun(planFor(records, 'region-b'), HOLDER, null)
  await bob.takeRun(old.runId, OTHER, true)
  const before = await everything()
  const late = [
    { ownership: [{ transition: 'drain', expected: record, target: 'region-b' }] },
    { starts: [{ id: randomUUID(), key: record.key, step: 'drain', action: 'drain' }] },
    { evidence: [evidenceFor(old, record.key, null, 'fence-holds')] },
    { keyOutcomes: [{ key: record.key, outcome: 'moved' }] },
    { runState: 'ABORTED' },
    {},
  ] as const
  for (const change of late)
    await expect(ada.commit(old, change)).rejects.toMatchObject({ code: 'superseded', fields: { holder: 'bob@beta pid 200' } })
  await expect(ada.renew(old)).rejects.toMatchObject({ code: 'superseded' })
  await expect(ada.release(old)).rejects.toMatchObject({ code: 'superseded' })
  expect(await everything()).toEqual(before)
})

/** All rows of all tables, as text. */
async function everything(): Promise<string> {
  const raw = await fixture.raw('admin')
  const tables = ['run', 'run_key', 'ownership', 'ownership_log', 'attempt', 'evidence', 'activation', 'audit', 'audit_head']
  const union = tables.map(t => `select '${t}' as name, to_jsonb(t)::text as row from homeregion_control.${t} t`).join(' union all ')
  return JSON.stringify((await raw.query(`${union} order by 1, 2`)).rows)
}

test('a run closes when its keys are ACTIVE, and not before; a closed run takes nothing', async () => {
  const [record] = await registered(1)
  if (record === undefined) throw new Error('not registered')
  const lease = await ada.openRun(planFor([record], 'region-b'), HOLDER, null)
  const drained = await only(ada.commit(lease, { ownership: [{ transition: 'drain', expected: record, target: 'region-b' }] }))
  await expect(ada.commit(lease, { runState: 'DONE' })).rejects.toMatchObject({ code: 'needs-human' })
  await ada.commit(lease, { runState: 'NEEDS_HUMAN' })
  const taken = await bob.takeRun(lease.runId, OTHER, false)
  const resume = { transition: 'resume-drained', expected: drained } as const
  const back = await only(
    bob.commit(taken, { ownership: [resume], keyOutcomes: [{ key: record.key, outcome: 'rolled-back' }], runState: 'ABORTED' }),
  )
  expect(back).toMatchObject({ state: 'ACTIVE', homeRegion: 'region-a', epoch: 1 })
  await expect(bob.commit(taken, {})).rejects.toMatchObject({ code: 'run-closed' })
  await expect(ada.takeRun(lease.runId, HOLDER, true)).rejects.toMatchObject({ code: 'run-closed' })
  // Its key is free again, under a token above every earlier one.
  const next = await ada.openRun(planFor([back], 'region-b'), HOLDER, null)
  expect(next.token).toBeGreaterThan(taken.token)
})

test('tokens that a region has seen of a control plane that forgot them are drawn past, and the holder alone gets the next', async () => {
  const [record] = await registered(1)
  if (record === undefined) throw new Error('no key')
  const lease = await ada.openRun(planFor([record], 'region-b'), HOLDER, null)
  await ada.drawTokens(lease.token + 5_000)
  const after = await ada.retakeRun(lease, HOLDER)
  expect(after.token).toBe(lease.token + 5_002)
  await ada.drawTokens(10)
  const next = await ada.retakeRun(after, HOLDER)
  expect(next.token).toBe(after.token + 2)
  await bob.takeRun(lease.runId, OTHER, true)
  await ada.drawTokens(next.token + 100)
  await expect(ada.retakeRun(next, HOLDER)).rejects.toMatchObject({ code: 'superseded' })
})

test('runs are found by how their reason begins, however many are newer', async () => {
  const records = await registered(3)
  for (const [i, record] of records.entries())
    await ada.openRun(planFor([record], 'region-b'), HOLDER, i === 0 ? 'automatic: region-a is dark' : 'not automatic: at all')
  const found = await ada.runs({ reasonBegins: 'automatic:', limit: 1 })
  expect(found.map(run => run.moves.map(m => m.key))).toEqual([[records[0]?.key]])
})

test('ownership is listed by page, region and state, and counted', async () => {
  const [record] = await ada.register([
    { key: 'list-1', homeRegion: 'region-z' },
    { key: 'list-2', homeRegion: 'region-z' },
    { key: 'list-3', homeRegion: 'region-z' },
  ])
  const lease = await ada.openRun(planFor(record === undefined ? [] : [record], 'region-b'), HOLDER, null)
  if (record !== undefined) await ada.commit(lease, { ownership: [{ transition: 'drain', expected: record, target: 'region-b' }] })
  const names = async (filter: { state?: string; after?: string; limit: number }) =>
    (await ada.listOwnership({ homeRegion: 'region-z', ...filter })).map(r => r.key)
  expect(await names({ limit: 2 })).toEqual(['list-1', 'list-2'])
  expect(await names({ limit: 2, after: 'list-2' })).toEqual(['list-3'])
  expect(await names({ limit: 9, state: 'ACTIVE' })).toEqual(['list-2', 'list-3'])
  expect((await ada.countOwnership()).filter(c => c.homeRegion === 'region-z')).toEqual([
    { homeRegion: 'region-z', state: 'ACTIVE', keys: 2 },
    { homeRegion: 'region-z', state: 'DRAINING', keys: 1 },
  ])
})

test('ten thousand keys are registered and moved to draining in one change each', async () => {
  const many = Array.from({ length: 10_001 }, (_, i) => ({ key: `bulk-${String(i).padStart(5, '0')}`, homeRegion: 'region-a' }))
  const records = await ada.register(many)
  expect(records).toHaveLength(10_001)
  const wave = records.slice(0, 500)
  const lease = await ada.openRun(planFor(wave, 'region-b'), HOLDER, null)
  const drained = await ada.commit(lease, { ownership: wave.map(expected => ({ transition: 'drain', expected, target: 'region-b' })) })
  expect(drained).toHaveLength(500)
  expect(await ada.auditBreak()).toBeNull()
})
