import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { isHomeregionError } from '../../src/domain/errors.ts'
import type { RunLease } from '../../src/domain/journal.ts'
import { type OwnershipRecord, resumeTransition } from '../../src/domain/ownership.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { type Fixture, HOLDER, OTHER, permitFor, planFor, startFixture } from './control-plane-fixture.ts'

const KEYS = ['tenant-1', 'tenant-2', 'tenant-3'] as const
const REGIONS = ['region-a', 'region-b', 'region-c'] as const
const STEPS = 400
const SEED = 20_240_607

let fixture: Fixture
beforeAll(async () => {
  fixture = await startFixture()
})
afterAll(async () => {
  await fixture.stop()
})

/** mulberry32: the same seed gives the same walk. */
function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

/** An operator that acts on what it remembers, which may be long out of date: a laptop that slept, a colleague in a hurry. */
type Operator = { store: ControlPlane; holder: typeof HOLDER; leases: RunLease[]; records: OwnershipRecord[] }

const EXPECTED = ['key-busy', 'plan-stale', 'run-leased', 'run-closed', 'superseded', 'epoch-moved', 'interlock-refused', 'needs-human']

test('random interleavings of two operators never yield two owners of an epoch, nor lose a row of the log', async () => {
  const random = randomOf(SEED)
  const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)]
  const operators: Operator[] = [HOLDER, OTHER].map(holder => ({ store: fixture.store(), holder, leases: [], records: [] }))
  const first = operators[0]
  if (first === undefined) throw new Error('no operator')
  await first.store.register(KEYS.map(key => ({ key, homeRegion: 'region-a' })))
  const committed: OwnershipRecord[] = []
  const refusals = new Map<string, number>()

  const act = async (who: Operator): Promise<void> => {
    const { store, holder, leases, records } = who
    const key = pick(KEYS) ?? KEYS[0]
    const remembered = records.filter(r => r.key === key)
    const record = random() < 0.8 ? remembered.at(-1) : pick(remembered)
    const lease = random() < 0.8 ? leases.at(-1) : pick(leases)
    const choice = random()
    if (record === undefined || choice < 0.15) {
      who.records.push(...(await store.ownership(KEYS)))
    } else if (lease === undefined || choice < 0.25) {
      const target = pick(REGIONS.filter(r => r !== record.homeRegion)) ?? 'region-b'
      leases.push(await store.openRun(planFor([record], target), holder, null))
    } else if (choice < 0.35) {
      const open = pick(await store.runs({ states: ['OPEN', 'NEEDS_HUMAN'], limit: 10 }))
      if (open !== undefined) leases.push(await store.takeRun(open.id, holder, random() < 0.7))
    } else if (choice < 0.42) {
      await store.commit(lease, { runState: pick(['DONE', 'ABORTED', 'NEEDS_HUMAN', 'OPEN'] as const) ?? 'OPEN' })
    } else {
      const changed = await change(store, lease, record, choice)
      committed.push(...changed)
      records.push(...changed)
    }
  }

  const change = async (store: ControlPlane, lease: RunLease, record: OwnershipRecord, choice: number) => {
    const resume = resumeTransition(record.state)
    if (resume !== null && choice > 0.9) return await store.commit(lease, { ownership: [{ transition: resume, expected: record }] })
    if (record.state === 'CATCH_UP') {
      const id = randomUUID()
      await store.commit(lease, { starts: [{ id, key: record.key, step: 'activate', action: 'activate' }] })
      // The interlock is asked about the record as remembered; a foreign run's record is refused before anything is sent.
      const permit = permitFor({ ...lease, runId: record.runId ?? '' }, record, id)
      return await store.commit(lease, { activation: { expected: record, permit } })
    }
    const transition = ({ ACTIVE: 'drain', DRAINING: 'fence', FENCED: 'catch-up' } as const)[record.state]
    const move = (await store.run(lease.runId))?.moves.find(m => m.key === record.key)
    return await store.commit(lease, { ownership: [{ transition, expected: record, target: move?.target ?? 'region-b' }] })
  }

  for (let step = 0; step < STEPS; step += 1) {
    const done = await Promise.allSettled(operators.map(act))
    for (const outcome of done) {
      if (outcome.status === 'fulfilled') continue
      const error: unknown = outcome.reason
      // A lease on one key and a record of another: the journal has no such key in the run.
      const foreign = error instanceof Error && /attempt_key/.test(error.message)
      if (!foreign && !(isHomeregionError(error) && EXPECTED.includes(error.code))) throw error
      const code = isHomeregionError(error) ? error.code : 'foreign-key'
      refusals.set(code, (refusals.get(code) ?? 0) + 1)
    }
  }

  let moves = 0
  for (const key of KEYS) {
    const log = await first.store.history(key)
    expect(log.map(row => row.seq)).toEqual(log.map((_, i) => i + 1))
    const owners = log.filter(row => row.transition === 'activate' || row.transition.startsWith('resume-') || row.transition === 'register')
    const risen = owners.filter((row, i) => row.epoch !== owners[i - 1]?.epoch)
    expect(risen.map(row => row.epoch)).toEqual(risen.map((_, i) => i + 1))
    for (const row of log) expect(row.homeRegion).toBe(risen.find(r => r.epoch === row.epoch)?.homeRegion)
    const acknowledged = committed.filter(r => r.key === key)
    expect(acknowledged.map(r => r.seq).toSorted((a, b) => a - b)).toEqual(log.slice(1).map(row => row.seq))
    expect((await first.store.ownership([key]))[0]).toMatchObject({ seq: log.length, epoch: log.at(-1)?.epoch })
    moves += log.filter(row => row.transition === 'activate').length
  }
  // The walk reached what it is about: keys moved, and operators were refused in every way.
  expect(moves).toBeGreaterThan(2)
  expect([...refusals.keys()]).toEqual(expect.arrayContaining(['key-busy', 'plan-stale', 'superseded', 'epoch-moved', 'run-closed']))
  expect(await first.store.auditBreak()).toBeNull()
})
