import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { RunLease } from '../../src/domain/journal.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { evidenceFor, type Fixture, HOLDER, only, permitFor, planFor, startFixture, toCatchUp } from './control-plane-fixture.ts'
import { startTcpGate, type TcpGate } from './tcp-gate.ts'

let fixture: Fixture
let gate: TcpGate
/** Reaches the database through the gate. */
let store: ControlPlane
let keys = 0

beforeAll(async () => {
  fixture = await startFixture()
  gate = await startTcpGate(fixture.server)
  const { operator } = fixture.config.controlPlane
  const url = operator.url.replace(`:${fixture.server.port}/`, `:${gate.port}/`)
  store = fixture.store({ controlPlane: { operator: { ...operator, url }, admin: null } })
})
afterAll(async () => {
  gate.restore()
  await fixture.stop()
  await gate.stop()
})

async function opened(): Promise<{ lease: RunLease; record: OwnershipRecord; key: string }> {
  keys += 1
  const key = `tenant-${keys}`
  const record = await only(store.register([{ key, homeRegion: 'region-a' }]))
  return { key, record, lease: await store.openRun(planFor([record], 'region-b'), HOLDER, 'a test') }
}

test('a commit of everything at once, activation included, is one round trip', async () => {
  const { lease, record, key } = await opened()
  const ready = await toCatchUp(store, lease, record, 'region-b')
  const attempt = randomUUID()
  await store.commit(lease, { starts: [{ id: attempt, key, step: 'activate', action: 'activate' }] })
  gate.reset()
  const moved = await store.commit(lease, {
    ends: [{ id: attempt, outcome: 'done', result: { lsn: '0/1' } }],
    starts: [{ id: randomUUID(), key, step: 'observe', action: 'gate' }],
    evidence: [evidenceFor(lease, key, null, 'target-can-write')],
    activation: { expected: ready, permit: permitFor(lease, ready, attempt) },
    keyOutcomes: [{ key, outcome: 'moved' }],
    runState: 'DONE',
  })
  expect(gate.turns()).toBe(1)
  expect(moved).toHaveLength(1)
  expect(await store.run(lease.runId)).toMatchObject({ state: 'DONE', holder: null, leaseAlive: false, moves: [{ outcome: 'moved' }] })
})

test('taking, renewing and opening cost one round trip each', async () => {
  const { lease } = await opened()
  for (const call of [
    async () => await store.renew(lease),
    async () => await store.takeRun(lease.runId, HOLDER, true),
    async () => await store.register([{ key: 'tenant-one-trip', homeRegion: 'region-a' }]),
  ]) {
    gate.reset()
    await call()
    expect(gate.turns()).toBe(1)
  }
})

test('the lost answer of a commit is unknown, and the authority can be read again', async () => {
  const { lease, record, key } = await opened()
  gate.loseAnswers()
  const lost = store.commit(lease, { ownership: [{ transition: 'drain', expected: record, target: 'region-b' }] })
  await expect(lost).rejects.toMatchObject({ code: 'outcome-unknown', retriable: false })
  gate.restore()
  await vi.waitFor(async () => expect(await only(store.ownership([key]))).toMatchObject({ state: 'DRAINING', seq: 2 }), { timeout: 10_000 })
})

test('a control plane that cannot be reached is said to have done nothing', async () => {
  const { operator } = fixture.config.controlPlane
  const dead = fixture.store({ controlPlane: { operator: { ...operator, url: 'postgresql://x@127.0.0.1:9/control' }, admin: null } })
  await expect(dead.takeRun('run-x', HOLDER, true)).rejects.toMatchObject({ code: 'control-plane-unreachable' })
})

test('an attempt settles once: unknown may be learnt, done may be undone, nothing else changes', async () => {
  const { lease, key } = await opened()
  const id = randomUUID()
  const end = async (outcome: 'done' | 'failed' | 'unknown' | 'undone') =>
    await store.commit(lease, { ends: [{ id, outcome, result: null }] })
  await store.commit(lease, { starts: [{ id, key, step: 'drain', action: 'drain' }] })
  await end('unknown')
  await end('done')
  await expect(end('failed')).rejects.toMatchObject({ code: 'unexpected' })
  await end('undone')
  await expect(end('undone')).rejects.toMatchObject({ code: 'unexpected' })
  expect(await store.attempts(lease.runId)).toMatchObject([{ id, key, step: 'drain', outcome: 'undone', token: lease.token }])
})

test('text that PostgreSQL cannot store does not stop the journal', async () => {
  const { lease, key } = await opened()
  const evil = {
    ...evidenceFor(lease, key, null, 'regions-reachable'),
    observed: 'nul \0 and \ud800',
    facts: { raw: '\0\udfff', quote: `'"\\` },
  }
  await store.commit(lease, { evidence: [evil] })
  expect(await store.evidence(lease.runId)).toMatchObject([
    { observed: 'nul \u{FFFD} and \u{FFFD}', facts: { raw: '\u{FFFD}\u{FFFD}', quote: `'"\\` } },
  ])
})

test('evidence of an attempt that was refused before it started is kept', async () => {
  const { lease, key } = await opened()
  await store.commit(lease, { evidence: [evidenceFor(lease, key, 'attempt-refused', 'barrier-applied', 'fail')] })
  expect(await store.evidence(lease.runId)).toMatchObject([{ attemptId: 'attempt-refused', verdict: 'fail' }])
})

test('an expected record that is not current is refused, and the change with all its parts', async () => {
  const { lease, record, key } = await opened()
  const drain = { transition: 'drain', expected: record, target: 'region-b' } as const
  await store.commit(lease, { ownership: [drain] })
  const stale = store.commit(lease, { ownership: [drain], evidence: [evidenceFor(lease, key, null, 'regions-reachable')] })
  await expect(stale).rejects.toMatchObject({ code: 'epoch-moved' })
  const early = store.commit(lease, { ownership: [{ transition: 'catch-up', expected: await only(store.ownership([key])) }] })
  await expect(early).rejects.toMatchObject({ code: 'epoch-moved' })
  expect(await store.evidence(lease.runId)).toEqual([])
  expect(await store.history(key)).toHaveLength(2)
})

test('each change is in the audit chain, and a changed, a missing and a cut row are found', async () => {
  const { lease, key, record } = await opened()
  await store.commit(lease, { ownership: [{ transition: 'drain', expected: record, target: 'region-b' }] })
  const [last, before] = await store.audit(2)
  expect(last).toMatchObject({ event: 'drain', runId: lease.runId, key, actor: 'homeregion_operator' })
  expect(before).toMatchObject({ event: 'run-opened', key })
  expect(await store.auditBreak()).toBeNull()
  const admin = await fixture.raw('admin')
  const seq = before?.seq ?? 0
  const breaks: readonly [string, number][] = [
    [`update homeregion_control.audit set actor = 'nobody' where seq = ${seq}`, seq],
    [`update homeregion_control.audit set detail = '{}' where seq = ${seq}`, seq],
    [`update homeregion_control.audit set at = at + interval '1 microsecond' where seq = ${seq}`, seq],
    [`delete from homeregion_control.audit where seq = ${seq}`, seq + 1],
    [`delete from homeregion_control.audit where seq >= ${seq}`, seq],
  ]
  for (const [tampering, found] of breaks) {
    await admin.query('create table public.saved as select * from homeregion_control.audit')
    await admin.query(tampering)
    expect({ tampering, found: await store.auditBreak() }).toEqual({ tampering, found })
    await admin.query('delete from homeregion_control.audit')
    await admin.query('insert into homeregion_control.audit select * from public.saved')
    await admin.query('drop table public.saved')
  }
  expect(await store.auditBreak()).toBeNull()
})
