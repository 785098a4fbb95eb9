import type { CheckName } from '../../src/domain/checks.ts'
import type { ActionUse, CheckUse, Runbook, Step } from '../../src/domain/runbook.ts'
import { REJOIN_ORDER } from '../../src/domain/runbook-lint-rejoin.ts'

export function check(name: CheckName): CheckUse {
  return { check: name, parameters: {} }
}

export function step(
  id: string,
  parts: Partial<Omit<Step, 'action' | 'gate' | 'watch'>> & { action?: ActionUse; gate?: CheckName[]; watch?: CheckName[] } = {},
): Step {
  return {
    id,
    title: id,
    withinMs: 30_000,
    forMs: 0,
    confirm: null,
    ...parts,
    action: parts.action ?? null,
    gate: (parts.gate ?? []).map(check),
    watch: (parts.watch ?? []).map(check),
  }
}

/** The shortest runbook that the linter accepts. */
export const STEPS: readonly Step[] = [
  step('preflight', { gate: ['boundary-installed', 'fence-covers-writers'] }),
  step('drain', { action: { kind: 'drain' }, gate: ['writes-in-flight'] }),
  step('fence', { action: { kind: 'fence' }, gate: ['fence-holds'] }),
  step('catch-up', { gate: ['barrier-applied', 'versions-equal', 'idempotency-carried'] }),
  step('activate', { action: { kind: 'activate' }, gate: ['target-accepts-write'] }),
]

/** The shortest runbook of a forced failover that the linter accepts. */
export const FORCED_STEPS: readonly Step[] = [
  step('sight', { gate: ['source-dark', 'no-region-ahead', 'target-can-write'] }),
  step('estimate', { gate: ['loss-acknowledged'], confirm: 'type-key' }),
  step('approve', { gate: ['approved'] }),
  step('isolate', { action: { kind: 'isolate' }, gate: ['lease-over'] }),
  step('activate', { action: { kind: 'activate' }, gate: ['target-accepts-write'] }),
]

export function failover(steps: readonly Step[]): Runbook {
  return { name: 'sample', intent: 'failover', title: 'Sample', steps }
}

/** FORCED_STEPS with one of them changed, or with more put before it. */
export function changedFailover(id: string, change: (found: Step) => readonly Step[]): Runbook {
  return failover(FORCED_STEPS.flatMap(found => (found.id === id ? change(found) : [found])))
}

export function runbook(steps: readonly Step[]): Runbook {
  return { name: 'sample', intent: 'transfer', title: 'Sample', steps }
}

/** STEPS with one of them changed, or with more put before it. */
export function changed(id: string, change: (found: Step) => readonly Step[]): Runbook {
  return runbook(STEPS.flatMap(found => (found.id === id ? change(found) : [found])))
}

/** The fixed steps of a rejoin, and nothing else. */
export const REJOIN_STEPS: readonly Step[] = REJOIN_ORDER.map(kind => step(kind, { action: { kind } }))

export function rejoinBook(steps: readonly Step[]): Runbook {
  return { name: 'sample', intent: 'rejoin', title: 'Sample', steps }
}

/** REJOIN_STEPS with one of them changed, or with more put before it. */
export function changedRejoin(id: string, change: (found: Step) => readonly Step[]): Runbook {
  return rejoinBook(REJOIN_STEPS.flatMap(found => (found.id === id ? change(found) : [found])))
}
