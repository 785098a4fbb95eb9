import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { isHomeregionError } from '../../src/domain/errors.ts'
import type { RunLease } from '../../src/domain/journal.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { evidenceFor, type Fixture, HOLDER, only, permitFor, planFor, REQUIRED, startFixture, toCatchUp } from './control-plane-fixture.ts'

let fixture: Fixture
let store: ControlPlane
let lease: RunLease
let otherLease: RunLease
/** In CATCH_UP, with a started attempt to activate. */
let ready: OwnershipRecord
const ATTEMPT = 'attempt-activate'
const LATER = 'attempt-later'

beforeAll(async () => {
  fixture = await startFixture()
  store = fixture.store()
  const [one, two] = await store.register([
    { key: 'tenant-1', homeRegion: 'region-a' },
    { key: 'tenant-2', homeRegion: 'region-a' },
  ])
  if (one === undefined || two === undefined) throw new Error('not registered')
  lease = await store.openRun(planFor([one], 'region-b'), HOLDER, null)
  otherLease = await store.openRun(planFor([two], 'region-b'), HOLDER, null)
  ready = await toCatchUp(store, lease, one, 'region-b')
  await toCatchUp(store, otherLease, two, 'region-b')
  const start = (id: string, key: string) => ({ id, key, step: 'activate', action: 'activate' })
  await store.commit(lease, { starts: [start(ATTEMPT, 'tenant-1'), start(LATER, 'tenant-1')] })
  await store.commit(otherLease, { starts: [start('attempt-other', 'tenant-2')] })
})
afterAll(async () => {
  await fixture.stop()
})

type Proof = { check: string; verdict: string; run: string; key: string; attempt: string; earlier?: boolean }
type Forged = {
  proofs?: Partial<Record<(typeof REQUIRED)[number], Partial<Proof> | null>>
  activation?: Readonly<Record<string, unknown>>
  log?: Readonly<Record<string, unknown>>
}

/** The statements of an activation by hand, as somebody with the operator's password would send them; undone at the end. */
async function activateByHand(client: pg.Client, forged: Forged): Promise<string> {
  const ids: Record<string, string | null> = {}
  await client.query('begin')
  try {
    const earlierFirst = REQUIRED.toSorted(
      (a, b) => Number(forged.proofs?.[b]?.earlier ?? false) - Number(forged.proofs?.[a]?.earlier ?? false),
    )
    for (const check of earlierFirst) {
      const change = forged.proofs?.[check]
      ids[check] = change === null ? null : randomUUID()
      if (change === null) continue
      const proof: Proof = { check, verdict: 'pass', run: lease.runId, key: 'tenant-1', attempt: ATTEMPT, ...change }
      await insert(client, 'evidence', {
        ...{ id: ids[check], nth: 0, run_id: proof.run, key: proof.key, check_name: proof.check, verdict: proof.verdict },
        ...{
          observed: '',
          required: '',
          observer: '',
          step: 'activate',
          attempt_id: proof.attempt,
          as_of: new Date(),
          as_of_monotonic_ms: 1,
        },
      })
      // Another transaction: the evidence is real, but it was not gathered for this activation.
      if (proof.earlier === true) {
        await client.query('commit')
        await client.query('begin')
      }
    }
    const id = randomUUID()
    await insert(client, 'activation', {
      ...{ id, run_id: lease.runId, key: 'tenant-1', source: 'region-a', target: 'region-b', epoch: 1, attempt_id: ATTEMPT, token: 1 },
      ...{ policy_id: 1, needs_barrier: true, needs_versions: true, needs_idempotency: true },
      ...{ fence_evidence_id: ids['fence-holds'], barrier_evidence_id: ids['barrier-applied'] },
      ...{ versions_evidence_id: ids['versions-equal'], idempotency_evidence_id: ids['idempotency-carried'] },
      ...forged.activation,
    })
    await insert(client, 'ownership_log', {
      ...{
        key: 'tenant-1',
        seq: ready.seq + 1,
        transition: 'activate',
        prev_seq: ready.seq,
        from_state: 'CATCH_UP',
        from_home: 'region-a',
      },
      ...{
        from_epoch: 1,
        from_target: 'region-b',
        from_run: lease.runId,
        to_state: 'ACTIVE',
        to_home: 'region-b',
        to_epoch: 2,
        to_target: '',
      },
      ...{ run_id: lease.runId, token: 1, activation_id: id },
      ...forged.log,
    })
    return 'accepted'
  } catch (error) {
    const { code, constraint, column } = error as pg.DatabaseError
    return `${code ?? ''} ${constraint ?? column ?? ''}`.trim()
  } finally {
    await client.query('rollback')
  }
}

async function insert(client: pg.Client, table: string, row: Readonly<Record<string, unknown>>): Promise<void> {
  const columns = Object.keys(row)
  await client.query(
    `insert into homeregion_control.${table} (${columns.join(', ')}) values (${columns.map((_, i) => `$${i + 1}`).join(', ')})`,
    Object.values(row),
  )
}

describe.each(['operator', 'admin'] as const)('by hand, as the %s', role => {
  const proofColumn = {
    'fence-holds': 'fence',
    'barrier-applied': 'barrier',
    'versions-equal': 'versions',
    'idempotency-carried': 'idempotency',
  }

  test('the control: an activation on all four proofs is accepted', async () => {
    expect(await activateByHand(await fixture.raw(role), {})).toBe('accepted')
  })

  test.each(REQUIRED)('%s is missing: refused', async check => {
    const answer = await activateByHand(await fixture.raw(role), { proofs: { [check]: null } })
    expect(answer).toBe(check === 'fence-holds' ? '23502 fence_evidence_id' : `23514 activation_needs_${proofColumn[check]}`)
  })

  test.each(REQUIRED)('%s is not a pass of this run, key, attempt and transaction: refused', async check => {
    const client = await fixture.raw(role)
    const forgeries: Partial<Proof>[] = [
      { verdict: 'fail' },
      { verdict: 'unknown' },
      { attempt: LATER },
      { run: otherLease.runId, key: 'tenant-2', attempt: 'attempt-other' },
      { check: 'regions-reachable' },
      { earlier: true },
    ]
    for (const forged of forgeries) {
      const answer = await activateByHand(client, { proofs: { [check]: forged } })
      expect({ forged, answer }).toEqual({ forged, answer: `23503 activation_${proofColumn[check]}` })
    }
  })

  test.each<[string, Forged, string]>([
    ['handing over without an activation', { log: { activation_id: null } }, '23514 ownership_log_interlock'],
    ['an activation that does not exist', { log: { activation_id: randomUUID() } }, '23503 ownership_log_activation'],
    ['to another target than was proved', { activation: { target: 'region-c' } }, '23503 activation_move'],
    ['of another epoch than was proved', { activation: { epoch: 2 } }, '23503 activation_move'],
    ['under a policy of one’s own', { activation: { needs_idempotency: false, idempotency_evidence_id: null } }, '23503 activation_policy'],
    ['on an attempt of another key', { activation: { attempt_id: 'attempt-other' } }, '23503 activation_attempt'],
    ['two epochs at once', { log: { to_epoch: 3 } }, '23514 ownership_log_transition'],
  ])('%s: refused', async (_, forged, expected) => {
    expect(await activateByHand(await fixture.raw(role), forged)).toBe(expected)
  })
})

test('a policy that was retired activates nothing any more', async () => {
  const admin = await fixture.raw('admin')
  await admin.query('update homeregion_control.interlock_policy set in_force = false')
  try {
    expect(await activateByHand(await fixture.raw('operator'), {})).toBe('23503 activation_policy')
    const attempt = store.commit(lease, { activation: { expected: ready, permit: permitFor(lease, ready, ATTEMPT) } })
    await expect(attempt).rejects.toMatchObject({ code: 'interlock-refused' })
  } finally {
    await admin.query('update homeregion_control.interlock_policy set in_force = true')
  }
})

test('the store refuses a copied permit, a permit on too little evidence and one for an unknown attempt, and changes nothing', async () => {
  const before = await footprint()
  const permit = permitFor(lease, ready, ATTEMPT)
  const tries = [
    { ...permit },
    permitFor(lease, ready, ATTEMPT, ['fence-holds', 'barrier-applied']),
    permitFor(lease, ready, 'attempt-nowhere'),
  ]
  for (const forged of tries) {
    const refused = await store.commit(lease, { activation: { expected: ready, permit: forged } }).catch((e: unknown) => e)
    expect(isHomeregionError(refused, 'interlock-refused')).toBe(true)
  }
  expect(await footprint()).toEqual(before)
})

test('an activation is one change with its evidence, and it can happen once', async () => {
  const permit = permitFor(lease, ready, ATTEMPT)
  const gate = evidenceFor(lease, 'tenant-1', null, 'target-can-write')
  const moved = await only(store.commit(lease, { activation: { expected: ready, permit }, evidence: [gate, ...permit.evidence] }))
  expect(moved).toMatchObject({ homeRegion: 'region-b', epoch: 2, state: 'ACTIVE', targetRegion: null, runId: lease.runId })
  const recorded = (await store.evidence(lease.runId)).map(e => e.check).slice(-5)
  expect(recorded).toEqual(['target-can-write', ...REQUIRED])
  const again = store.commit(lease, { activation: { expected: ready, permit: permitFor(lease, ready, ATTEMPT) } })
  await expect(again).rejects.toMatchObject({ code: 'epoch-moved' })
})

async function footprint() {
  return { history: await store.history('tenant-1'), evidence: await store.evidence(lease.runId), audit: await store.audit(1) }
}
