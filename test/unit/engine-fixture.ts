import type { BoundaryRow, InFlightWrite } from '../../src/domain/boundary.ts'
import type { Clock, ControlPlane, RegionDatabase, RegionStream } from '../../src/domain/ports.ts'
import type { CheckUse, Step } from '../../src/domain/runbook.ts'
import type { Engine, Operator, RunEvent } from '../../src/engine/context.ts'

/** A clock that only moves when somebody sleeps on it: deadlines of minutes cost nothing. */
export function createManualClock(): Clock & { advance(ms: number): void } {
  let nowMs = 0
  return {
    now: () => new Date(nowMs).toISOString(),
    monotonicMs: () => nowMs,
    sleep: ms => {
      nowMs += ms
      return Promise.resolve()
    },
    advance: ms => {
      nowMs += ms
    },
  }
}

export type Script = {
  readonly inFlight?: () => readonly InFlightWrite[]
  readonly unpublished?: () => number
  readonly inbox?: () => boolean
}

/** What of a region a gate test looks at; every other call is a mistake of the test and throws. */
export function createScriptedRegion(region: string, script: Script, calls: string[]): RegionDatabase {
  const answered: Partial<RegionDatabase> = {
    region,
    inFlight: () => {
      calls.push('in-flight')
      return Promise.resolve(script.inFlight?.() ?? [])
    },
    unpublished: () => {
      calls.push('unpublished')
      const count = script.unpublished?.() ?? 0
      return Promise.resolve({ count, oldestAgeMs: count > 0 ? 1200 : null, oldestEventId: count > 0 ? 'event-1' : null })
    },
    inboxHas: () => {
      calls.push('inbox')
      return Promise.resolve(script.inbox?.() ?? true)
    },
    read: () => Promise.resolve<BoundaryRow | null>(null),
  }
  return only<RegionDatabase>(answered)
}

export type FakeEngine = Engine & { readonly events: RunEvent[] }

export function createFakeEngine(
  regions: readonly RegionDatabase[],
  operator: Partial<Operator> = {},
  clock: Clock = createManualClock(),
): FakeEngine {
  const events: RunEvent[] = []
  return {
    events,
    controlPlane: only<ControlPlane>({}),
    region: name => {
      const found = regions.find(r => r.region === name)
      if (found === undefined) throw new Error(`the test has no ${name}`)
      return found
    },
    stream: () => only<RegionStream>({}),
    hooks: { run: () => Promise.resolve({ code: 0, output: '' }), request: () => Promise.resolve({ status: 200 }) },
    clock,
    fault: () => Promise.resolve(),
    policy: {
      interlock: { required: [], evidenceMaxAgeMs: 1000 },
      dropped: [],
      runLeaseMs: 1000,
      callTimeoutMs: 1000,
      shared: false,
      inboxGroup: r => r,
      alarm: null,
    },
    operator: {
      report: event => void events.push(event),
      confirm: () => Promise.resolve(true),
      atDeadline: () => Promise.resolve('abort'),
      interrupted: () => false,
      ...operator,
    },
    holder: { host: 'test', pid: 1, user: 'test' },
    fences: () => [],
    newId: () => 'id',
  }
}

export function step(id: string, gate: readonly CheckUse['check'][], change: Partial<Step> = {}): Step {
  return {
    id,
    title: id,
    action: null,
    gate: gate.map(check => ({ check, parameters: {} })),
    watch: [],
    withinMs: 10_000,
    forMs: 0,
    confirm: null,
    ...change,
  }
}

/** What a test answers of a port; every other call is a mistake of the test and throws. */
export function only<T extends object>(answered: Partial<T>): T {
  return new Proxy(answered, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name)
      if (value === undefined) throw new Error(`the test did not expect a call of ${String(name)}`)
      return value
    },
  }) as T
}
