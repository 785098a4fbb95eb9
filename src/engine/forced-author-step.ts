import type { Step } from '../domain/runbook.ts'
import { applyAction } from './actions/table.ts'
import { subjectOf } from './forced-activation.ts'
import type { ForcedMove } from './forced-move.ts'
import { createKeyMove } from './key-move.ts'

/** The author's own action of a step: once a run, journalled under its first key. */
export async function applyAuthors(move: ForcedMove, step: Step): Promise<void> {
  const [first] = move.moves
  const [record] = first === undefined ? [] : await move.engine.controlPlane.ownership([first.key])
  if (first === undefined || record === undefined) return
  await applyAction(createKeyMove(move.engine, move.journal, [step], subjectOf(move), first, record), step)
}
