import type { ExitName } from '../domain/exit-codes.ts'
import type { RunState } from '../domain/journal.ts'
import type { PlannedMove } from '../domain/plan.ts'
import type { Engine } from './context.ts'
import { type KeyEnd, textOf } from './recover.ts'
import type { RunJournal } from './run-journal.ts'

export type RunEnd = {
  readonly runId: string
  readonly exit: ExitName
  readonly state: RunState
  readonly keys: readonly { readonly move: PlannedMove; readonly end: KeyEnd }[]
}

/** Worst first: what needs somebody decides the exit code. */
const SEVERITY: readonly ExitName[] = ['unknown', 'needsHuman', 'interrupted', 'rolledBack', 'done']

export async function closeRun(
  engine: Engine,
  journal: RunJournal,
  ends: readonly { move: PlannedMove; end: KeyEnd }[],
  whenSettled: 'DONE' | 'ABORTED',
): Promise<RunEnd> {
  const exit = SEVERITY.find(name => ends.some(e => e.end.exit === name)) ?? 'done'
  const unsettled = ends.some(e => e.end.outcome === null)
  const rolledBack = ends.length > 0 && ends.every(e => e.end.outcome !== 'moved')
  const state: RunState = unsettled ? (exit === 'interrupted' ? 'OPEN' : 'NEEDS_HUMAN') : rolledBack ? 'ABORTED' : whenSettled
  try {
    await journal.commit('close', { runState: state })
    // Left open: whoever goes on need not wait for the lease to run out.
    if (unsettled) await engine.controlPlane.release(journal.lease())
  } catch (error) {
    // The keys' ends are known and told; only the run's own row may be behind. Its next resume finds nothing left to do.
    if (!unsettled) engine.operator.report({ type: 'note', text: `the run could not be closed: ${textOf(error)}` })
  }
  return { runId: journal.runId, exit, state, keys: ends }
}

export function reportEnd(engine: Engine, move: PlannedMove, end: KeyEnd): void {
  engine.operator.report({
    type: 'key-ended',
    move,
    outcome: end.outcome ?? 'unknown',
    detail: end.outcome === 'moved' ? end.state : `${end.fact}. ${end.state}`,
  })
}
