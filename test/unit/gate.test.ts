import { describe, expect, test } from 'vitest'
import type { InFlightWrite } from '../../src/domain/boundary.ts'
import { passGates } from '../../src/engine/gate.ts'
import { createFakeEngine, createScriptedRegion, type Script, step } from './engine-fixture.ts'

const writer: InFlightWrite = { pid: 77, role: 'app', application: 'billing', state: 'idle in transaction', ageMs: 4000, gid: null }
const move = { key: 'tenant-42', source: 'a', target: 'b', epoch: 17, seq: 1 }
const drainAndPublish = [step('drain', ['writes-in-flight']), step('publish', ['outbox-published'])]

function subject() {
  return { moves: [move], move, barrierEventId: 'barrier-1', startedMonotonicMs: 0, standing: [], memory: new Map<string, unknown>() }
}

function scripted(script: Script, calls: string[] = []) {
  return createFakeEngine([createScriptedRegion('a', script, calls), createScriptedRegion('b', script, calls)])
}

describe('a gate', () => {
  test('opens when every check has passed, and tells of each step once, in order', async () => {
    const told: string[] = []
    const result = await passGates(scripted({}), 'run-1', drainAndPublish, subject(), s => told.push(s.id))
    expect(result.kind).toBe('passed')
    expect(told).toEqual(['drain', 'publish'])
  })

  test('does not keep a count of the outbox that was taken while a writer was still open', async () => {
    const calls: string[] = []
    let open = 2
    let published = 0
    const engine = scripted(
      { inFlight: () => (open-- > 0 ? [writer] : []), unpublished: () => (open >= 0 ? 0 : published++ === 0 ? 1 : 0) },
      calls,
    )
    const result = await passGates(engine, 'run-1', drainAndPublish, subject(), () => undefined)
    expect(result.kind).toBe('passed')
    const lastWriterSeen = calls.lastIndexOf('in-flight')
    expect(calls.slice(lastWriterSeen + 1).filter(c => c === 'unpublished').length).toBeGreaterThanOrEqual(2)
  })

  test('that waits too long reports every check of its step, and whom it waits for', async () => {
    const result = await passGates(scripted({ inFlight: () => [writer] }), 'run-1', drainAndPublish, subject(), () => undefined)
    expect(result).toMatchObject({ kind: 'not-passed', why: 'deadline', step: { id: 'drain' } })
    expect(result.evidence[0]?.observed).toBe(
      'pid 77 of app (billing), idle in transaction, open 4.0 s. To end it yourself: select pg_terminate_backend(77)',
    )
  })

  test('waits as long again when the operator says so', async () => {
    let asked = 0
    const region = createScriptedRegion('a', { inFlight: () => (asked < 2 ? [writer] : []) }, [])
    const engine = createFakeEngine([region], { atDeadline: () => Promise.resolve(asked++ < 2 ? 'wait' : 'abort') })
    const result = await passGates(engine, 'run-1', [step('drain', ['writes-in-flight'])], subject(), () => undefined)
    expect(result.kind).toBe('passed')
    expect(asked).toBe(2)
    expect(engine.clock.monotonicMs()).toBeGreaterThanOrEqual(20_000)
  })

  test('treats a check that cannot observe as unknown, and unknown never opens it', async () => {
    const engine = createFakeEngine([])
    const result = await passGates(engine, 'run-1', [step('drain', ['writes-in-flight'])], subject(), () => undefined)
    expect(result).toMatchObject({ kind: 'not-passed', why: 'deadline' })
    expect(result.evidence[0]).toMatchObject({ verdict: 'unknown', observed: 'not observed: the test has no a' })
  })

  test('refuses at once where waiting cannot help', async () => {
    const engine = createFakeEngine([])
    const installed = {
      region: null,
      boundaryVersion: null,
      serverVersion: '18',
      inRecovery: false,
      readOnly: false,
      guardProblems: [],
      missingPrivileges: [],
      fencedSince: null,
      fencedReason: null,
      lease: null,
      writesNeedLease: false,
      maxPreparedTransactions: 0,
    }
    const bare = { region: 'a', facts: () => Promise.resolve(installed) }
    const result = await passGates(
      { ...engine, region: () => bare as never },
      'run-1',
      [step('preflight', ['boundary-installed'])],
      subject(),
      () => undefined,
    )
    expect(result).toMatchObject({ kind: 'not-passed', why: 'refused' })
    expect(engine.clock.monotonicMs()).toBe(0)
  })

  test('stops waiting when the operator interrupts, and does not open', async () => {
    const engine = createFakeEngine([createScriptedRegion('a', { inFlight: () => [writer] }, [])], { interrupted: () => true })
    expect(await passGates(engine, 'run-1', [step('drain', ['writes-in-flight'])], subject(), () => undefined)).toMatchObject({
      kind: 'not-passed',
      why: 'interrupted',
    })
  })
})
