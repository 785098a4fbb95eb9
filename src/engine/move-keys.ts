import { HomeregionError } from '../domain/errors.ts'
import type { KeyOutcome } from '../domain/journal.ts'
import { showKey } from '../domain/key.ts'
import type { PlannedMove } from '../domain/plan.ts'
import type { Runbook } from '../domain/runbook.ts'
import type { CheckSubject, Engine } from './context.ts'
import { createKeyMove, type KeyMove } from './key-move.ts'
import { GateNotPassed, movedDetail, moveKey } from './move-key.ts'
import { type KeyEnd, recover } from './recover.ts'
import { rehearse } from './rehearse.ts'
import { closeRun, type RunEnd, reportEnd } from './run-end.ts'
import type { RunJournal } from './run-journal.ts'
import { applyOnce } from './run-step.ts'
import { partsOf } from './segments.ts'
import { watch } from './watch.ts'

/** What an earlier process of the same run has done: its keys are not moved again, but what stands after the last one is still owed. */
export type Before = { readonly moved: readonly PlannedMove[]; readonly doneSteps: ReadonlySet<string> }

type Pending = { readonly move: PlannedMove; readonly doneSteps: ReadonlySet<string>; readonly key?: KeyMove }

/** Key after key, then what is owed after the last one, then the end of the run. */
export async function moveAll(
  engine: Engine,
  journal: RunJournal,
  runbook: Runbook,
  subject: CheckSubject,
  pending: readonly Pending[],
  options: { readonly observeMs: number | null },
  before: Before = { moved: [], doneSteps: new Set() },
): Promise<RunEnd> {
  const parts = partsOf(runbook.steps)
  const ends: { move: PlannedMove; end: KeyEnd }[] = []
  const records = new Map((await engine.controlPlane.ownership(pending.map(p => p.move.key))).map(r => [r.key, r]))
  for (const [index, { move, doneSteps, key: settled }] of pending.entries()) {
    engine.operator.report({ type: 'key-started', move, index, total: pending.length })
    const record = records.get(move.key)
    if (record === undefined) throw new HomeregionError('unknown-key', { fact: `${showKey(move.key)} is not registered any more` })
    const key = settled ?? createKeyMove(engine, journal, parts.perKey, subject, move, record)
    const end = await moveOne(key, doneSteps)
    reportEnd(engine, move, end)
    ends.push({ move, end })
    // The first key is the canary; after it a key that went back cleanly does not stop the others. Anything unsettled does.
    if (end.outcome === null || (index === 0 && end.outcome !== 'moved')) break
  }
  const left = pending.slice(ends.length)
  const unsettled = ends.some(e => e.end.outcome === null)
  if (!unsettled && left.length > 0) {
    await journal.commit('not-moved', { keyOutcomes: left.map(p => ({ key: p.move.key, outcome: 'not-moved' as const })) })
    for (const { move } of left)
      ends.push({
        move,
        end: {
          outcome: 'not-moved',
          exit: 'rolledBack',
          fact: 'not begun, since an earlier key did not move',
          state: `${showKey(move.key)} is written at ${move.source} as before.`,
          next: null,
        },
      })
  }
  const moved = [...before.moved, ...ends.filter(e => e.end.outcome === 'moved').map(e => e.move)]
  if (!unsettled && moved.length > 0) {
    const whole = { ...subject, moves: moved }
    for (const step of parts.after) await applyOnce(engine, journal, step, whole, before.doneSteps)
    const seen = await watch(engine, journal, parts.after, whole, moved, options.observeMs)
    if (seen !== null) ends.push({ move: seen.move, end: seen.end })
  }
  return await closeRun(engine, journal, ends, 'DONE')
}

async function moveOne(key: KeyMove, doneSteps: ReadonlySet<string>): Promise<KeyEnd> {
  const { journal, move } = key
  try {
    await rehearse(key)
    await moveKey(key, doneSteps)
    await journal.commit('key-end', { keyOutcomes: [{ key: move.key, outcome: 'moved' }] })
    return { outcome: 'moved', exit: 'done', fact: 'moved', state: `${movedDetail(key)}.`, next: null }
  } catch (error) {
    if (error instanceof GateNotPassed) journal.buffer({ evidence: error.evidence })
    const end = await recover(key, error)
    if (end.outcome === null) return end
    await journal.commit('key-end', { keyOutcomes: [{ key: move.key, outcome: end.outcome satisfies KeyOutcome }] })
    return end
  }
}
