import { expect, test } from 'vitest'
import { HomeregionError } from '../../src/domain/errors.ts'
import { fail, type Observation, pass, unknown } from '../../src/domain/evidence.ts'
import { FENCE_KINDS, type Fence, type FenceEntry, type FenceJournal, type FenceKind, type FenceStatus } from '../../src/domain/fence.ts'
import { askedAgain, newestWish } from '../../src/domain/fence-wish.ts'
import type { RegionDatabase } from '../../src/domain/ports.ts'
import { lookAtFences, probeFences } from '../../src/engine/fence-probe.ts'
import { applyFences, endOf, type FenceWatcher, inOrder, liftFences } from '../../src/engine/region-fences.ts'
import { CAUSE, sampleEntry } from './fence-sample.ts'

const WATCHER: FenceWatcher = { started: () => undefined, ended: () => undefined, interrupted: () => false }

type Script = {
  readonly apply?: () => Promise<readonly string[]>
  readonly proofs?: readonly Observation[]
  readonly status?: Partial<FenceStatus>
  /** Its state once it was applied. */
  readonly after?: FenceStatus['state']
}

function fence(kind: FenceKind, script: Script = {}, calls: string[] = []): Fence {
  let state: FenceStatus['state'] = 'lifted'
  return {
    region: 'region-a',
    name: kind,
    kind,
    plan: () => Promise.resolve([]),
    apply: async () => {
      calls.push(`apply ${kind}`)
      const lines = (await script.apply?.()) ?? []
      state = script.after ?? 'applied'
      return lines
    },
    verify: () => {
      calls.push(`verify ${kind}`)
      return Promise.resolve(script.proofs ?? [pass('x', 'holds', 'holds')])
    },
    lift: (_, asked) => {
      calls.push(`lift ${kind} ${asked}`)
      if (script.status?.asked !== undefined && script.status.asked !== asked)
        return Promise.reject(askedAgain({ region: 'region-a', name: kind }, { asked: script.status.asked ?? 0, cause: CAUSE }))
      return Promise.resolve([])
    },
    status: () => Promise.resolve({ state, since: null, cause: null, asked: null, holds: [], ...script.status }),
    close: () => Promise.resolve(),
  }
}

const broken = () => Promise.reject(new HomeregionError('kafka-unreachable', { fact: 'no broker answers' }))

test('the boundary goes up first and comes down last; what may cut our own way goes up last', () => {
  const all = [...FENCE_KINDS].reverse().map(kind => fence(kind))
  const up = inOrder(all, 'apply').map(f => f.kind)
  expect(up).toEqual(['boundary', 'kafka', 'credentials', 'read-only', 'exec', 'http'])
  expect(inOrder(all, 'lift').map(f => f.kind)).toEqual([...up].reverse())
})

test('each is proved right after it went up, and one that fails does not keep the others from being tried', async () => {
  const calls: string[] = []
  const fences = [fence('boundary', {}, calls), fence('kafka', { apply: broken }, calls), fence('read-only', {}, calls)]
  const results = await applyFences(fences, CAUSE, WATCHER)
  expect(calls).toEqual(['apply boundary', 'verify boundary', 'apply kafka', 'apply read-only', 'verify read-only'])
  const end = endOf(results, 3)
  expect(end?.code).toBe('kafka-unreachable')
  expect(end?.text.state).toBe('boundary, read-only stands, proved; kafka was not applied as a whole.')
})

test('two that fail in different ways are one fence-failed that names both', async () => {
  const results = await applyFences(
    [fence('boundary', { apply: () => Promise.reject(new Error('boom')) }), fence('kafka', { apply: broken })],
    CAUSE,
    WATCHER,
  )
  const end = endOf(results, 2)
  expect(end?.code).toBe('fence-failed')
  expect(end?.text.fact).toMatch(/boundary: unexpected: boom; kafka: no broker answers/)
})

test.each([
  ['does not hold', fail('x', 'refused', 'admitted'), 'fence-open', 3],
  ['could not be seen', unknown('x', 'refused', 'no answer'), 'outcome-unknown', 9],
])('a proof that %s is no success', async (_, proof, code) => {
  const results = await applyFences([fence('boundary'), fence('read-only', { proofs: [proof] })], CAUSE, WATCHER)
  expect(endOf(results, 2)?.code).toBe(code)
})

test('a fence that proves nothing is not proved', async () => {
  const results = await applyFences([fence('boundary', { proofs: [] })], CAUSE, WATCHER)
  expect(endOf(results, 1)?.code).toBe('outcome-unknown')
})

test('an interruption between two fences is said with what was not tried', async () => {
  let asked = 0
  const results = await applyFences([fence('boundary'), fence('kafka')], CAUSE, { ...WATCHER, interrupted: () => asked++ > 0 })
  expect(endOf(results, 2)).toMatchObject({ code: 'interrupted', text: { state: expect.stringContaining('1 were not tried') as string } })
})

test('a lift that is refused on the way lifts nothing more', async () => {
  const calls: string[] = []
  const refuse = () => Promise.reject(new HomeregionError('lift-refused', { fact: 'tenant-1 is at home in region-b' }))
  const results = await liftFences([fence('boundary', {}, calls), fence('kafka', {}, calls)], CAUSE, WATCHER, new Map(), refuse)
  expect(calls).toEqual([])
  expect(endOf(results, 2)?.code).toBe('lift-refused')
})

test('a lift is for the wishes that were seen: another one for any of the fences keeps all that would follow', async () => {
  const calls: string[] = []
  const fences = [fence('boundary', { status: { asked: 7 } }, calls), fence('kafka', { status: { asked: 4 } }, calls)]
  const seen = new Map([
    ['boundary', 7],
    ['kafka', 3],
  ])
  const results = await liftFences(fences, CAUSE, WATCHER, seen, () => Promise.resolve())
  expect(calls).toEqual(['lift kafka 3'])
  expect(endOf(results, 2)).toMatchObject({ code: 'fence-asked-again', exit: 'conflict' })
})

test('a fence that somebody lifted before the last one was applied does not hold', async () => {
  const results = await applyFences([fence('boundary', { after: 'lifted' }), fence('kafka')], CAUSE, WATCHER)
  expect(endOf(results, 2)).toMatchObject({ code: 'fence-open', text: { fact: 'region-a: boundary does not hold' } })
})

test('the record keeps the newest wish, but a run does not hide a person who still wants it; each wish has a number of its own', () => {
  const run = { reason: 'step seal of run r', by: 'runner', runId: 'r' }
  const person = { state: 'applied' as const, asked: 2_000_000, cause: CAUSE }
  expect(newestWish(null, run, 1)).toEqual({ asked: 1000, cause: run })
  expect(newestWish(person, run, 1)).toEqual({ asked: 2_000_001, cause: CAUSE })
  expect(newestWish({ ...person, state: 'lifting' }, run, 3000)).toEqual({ asked: 3_000_000, cause: run })
  expect(newestWish({ ...person, cause: run }, CAUSE, 1)).toEqual({ asked: 2_000_001, cause: CAUSE })
  expect(newestWish(person, { ...CAUSE, by: 'bob@desk' }, 1).cause.by).toBe('bob@desk')
})

const told = (...answers: readonly FenceEntry[][]): FenceJournal => {
  let asked = 0
  return {
    told: () => Promise.resolve({ entries: answers[Math.min(asked++, answers.length - 1)] ?? [], from: 'control plane' }),
  } as unknown as FenceJournal
}

test('a fence on record as applied that is lifted was lifted behind the back of its record', async () => {
  const [look] = await lookAtFences([fence('boundary')], told([sampleEntry()]))
  expect(look?.foundLifted).toBe(true)
})

test('a fence that is just being lifted or applied by somebody was not', async () => {
  const applied = sampleEntry()
  const [lifting] = await lookAtFences([fence('boundary')], told([applied], [sampleEntry({ event: 'lift-started' })]))
  expect(lifting?.foundLifted).toBe(false)
  const [applying] = await lookAtFences([fence('boundary')], told([], [applied]))
  expect(applying?.foundLifted).toBe(false)
})

function database(outcome: 'admitted' | 'refused' | 'unknown', sqlstate: string | null): RegionDatabase {
  const result = { writer: 'app', table: 'public.account', outcome, sqlstate, message: 'said', isolation: 'read committed', role: 'app' }
  return {
    region: 'region-a',
    homeKeys: () => Promise.resolve([]),
    probeWrites: () => Promise.resolve([result]),
  } as unknown as RegionDatabase
}

const STANDS = { status: { state: 'applied', since: '2026-01-01T00:00:00.000Z', cause: CAUSE } } as const

test('a probe passes when a fence stands and every writer is refused', async () => {
  const probe = await probeFences([fence('boundary', STANDS)], database('refused', 'HR009'), told([]), ['app'])
  expect(probe.verdict).toBe('pass')
})

test('a probe fails when a write is admitted, when no fence stands, and when one is half-done', async () => {
  const verdict = async (f: Fence, d: RegionDatabase) => (await probeFences([f], d, told([]), ['app'])).verdict
  expect(await verdict(fence('boundary', STANDS), database('admitted', null))).toBe('fail')
  expect(await verdict(fence('boundary'), database('refused', 'HR009'))).toBe('fail')
  expect(await verdict(fence('boundary', { status: { ...STANDS.status, state: 'applying' } }), database('refused', 'HR009'))).toBe('fail')
})

test('a refused login counts only where a fence of the credentials is proved', async () => {
  const refused = database('unknown', '28P01')
  expect((await probeFences([fence('boundary', STANDS)], refused, told([]), ['app'])).verdict).toBe('unknown')
  expect((await probeFences([fence('credentials', STANDS)], refused, told([]), ['app'])).verdict).toBe('pass')
  const unproved = fence('credentials', { ...STANDS, proofs: [unknown('x', 'holds', 'no answer')] })
  expect((await probeFences([unproved], refused, told([]), ['app'])).verdict).toBe('unknown')
})
