import type { Step } from '../domain/runbook.ts'
import { applyAction } from './actions/table.ts'
import type { CheckSubject, Engine } from './context.ts'
import { createKeyMove } from './key-move.ts'
import type { RunJournal } from './run-journal.ts'

/** The author's own action of a step that stands before or after the keys' own steps: once a run, journalled under its first key. */
export async function applyOnce(
  engine: Engine,
  journal: RunJournal,
  step: Step,
  subject: CheckSubject,
  doneSteps: ReadonlySet<string>,
): Promise<void> {
  const move = subject.moves[0]
  if (step.action === null || move === undefined || doneSteps.has(step.id)) return
  const [record] = await engine.controlPlane.ownership([move.key])
  if (record !== undefined) await applyAction(createKeyMove(engine, journal, [step], subject, move, record), step)
}
