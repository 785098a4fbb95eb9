import type { Evidence } from '../domain/evidence.ts'
import type { ExitName } from '../domain/exit-codes.ts'
import type { RunState } from '../domain/journal.ts'
import { announceAll, openAll, subjectOf } from './forced-activation.ts'
import { applyAuthors } from './forced-author-step.ts'
import { count, end, onlyForward } from './forced-ends.ts'
import type { ForcedEnd, ForcedMove } from './forced-move.ts'
import { passGates } from './gate.ts'
import { GateNotPassed } from './move-key.ts'
import { isForeign, textOf } from './recover.ts'
import { watch } from './watch.ts'

/** The keys are the target's. Whatever fails from here on leaves the run open for `resume`, and says so. */
export async function afterCommit(move: ForcedMove): Promise<ForcedEnd> {
  const { engine, journal, operator, runbook } = move
  const at = runbook.steps.findIndex(step => step.action?.kind === 'activate')
  const step = runbook.steps[at]
  if (step === undefined) throw new RangeError('a forced failover without an activation')
  const started = engine.clock.monotonicMs()
  try {
    await openAll(move)
    if (move.openAttempt !== null)
      journal.buffer({ ends: [{ id: move.openAttempt, outcome: 'done', result: { opened: move.moves.length } }] })
    const gate = await passGates(engine, journal.runId, [step], subjectOf(move), () => undefined)
    journal.buffer({ evidence: gate.evidence })
    if (gate.kind === 'not-passed') throw new GateNotPassed(step, gate.evidence, gate.why)
    operator.report({ type: 'step-passed', step, key: null, evidence: gate.evidence, tookMs: engine.clock.monotonicMs() - started })
    await announceAll(move)
    await engine.fault('forced:announced')
    const rest = runbook.steps.slice(at + 1)
    for (const later of rest) if (later.action !== null && !move.doneSteps.has(later.id)) await applyAuthors(move, later)
    await journal.commit('moved', { keyOutcomes: move.moves.map(m => ({ key: m.key, outcome: 'moved' as const })) })
    const seen = await watch(engine, journal, rest, subjectOf(move), move.moves, move.observeMs)
    await journal.commit('close', { runState: 'DONE' })
    const next = `homeregion rejoin ${move.source} --reason TEXT   (when it is back; reconcile is pending)`
    const data = `${move.target} owns ${count(move)} and has opened them, read back${probed(gate.evidence)}; ${move.source} is in exile.`
    if (seen !== null) return end(move, seen.end.exit, 'DONE', seen.end.fact, data, next)
    return end(move, 'done', 'DONE', `${count(move)} moved from ${move.source} to ${move.target}`, data, next)
  } catch (error) {
    if (isForeign(error)) throw error
    return await leftOpen(move, error)
  }
}

/** Of thousands of keys a sample was written: what is said of them is what was seen. */
function probed(evidence: readonly Evidence[]): string {
  const seen = evidence.find(e => e.check === 'target-accepts-write')
  return seen === undefined ? '' : `; as its writers: ${seen.observed}`
}

async function leftOpen(move: ForcedMove, error: unknown): Promise<ForcedEnd> {
  const { engine, journal } = move
  const interruptedByUser = error instanceof GateNotPassed && error.why === 'interrupted'
  const exit: ExitName = interruptedByUser ? 'interrupted' : 'needsHuman'
  const state: RunState = interruptedByUser ? 'OPEN' : 'NEEDS_HUMAN'
  const saved = await journal
    .commit('left-open', { runState: state })
    .then(async () => await engine.controlPlane.release(journal.lease()).then(() => null, textOf), textOf)
  if (saved !== null) engine.operator.report({ type: 'note', text: `the run could not be saved: ${saved}` })
  return { ...onlyForward(move, textOf(error)), exit, state }
}
