import { HomeregionError } from '../domain/errors.ts'
import type { Step } from '../domain/runbook.ts'
import { consent } from './checks/forced.ts'
import { observe } from './checks/observe.ts'
import { handOverAll, isLost, refusalOf, subjectOf, wasHandedOver } from './forced-activation.ts'
import { afterCommit } from './forced-after.ts'
import { applyAuthors } from './forced-author-step.ts'
import { interrupted, refuse, waits } from './forced-ends.ts'
import type { ForcedEnd, ForcedMove } from './forced-move.ts'
import { passGates } from './gate.ts'
import { GateNotPassed } from './move-key.ts'
import { isolateSource } from './outside-fence.ts'
import { isForeign, textOf } from './recover.ts'

/** Everything up to the one commit, and the commit. What ends it before has changed nothing of ownership; whether it was reached, the authority says. */
export async function beforeCommit(move: ForcedMove): Promise<ForcedEnd> {
  const { engine, journal, runbook } = move
  try {
    for (const step of runbook.steps) {
      if (engine.operator.interrupted()) return await interrupted(move)
      if (step.action?.kind === 'activate') {
        move.openAttempt = await handOver(move, step)
        return await afterCommit(move)
      }
      const waiting = await perform(move, step)
      if (waiting !== null) return waiting
    }
    throw new HomeregionError('runbook-invalid', { fact: `runbook ${runbook.name} hands nothing over` })
  } catch (error) {
    if (isForeign(error)) throw error
    if (error instanceof GateNotPassed && error.why === 'interrupted') return await interrupted(move)
    // Whoever was to be asked is away: what the commit did, if it was sent, only the authority knows.
    const handedOver = await wasHandedOver(move).catch(() => null)
    if (handedOver === true) return await afterCommit(move)
    if (handedOver === null)
      throw new HomeregionError(
        'outcome-unknown',
        {
          fact: `the control plane does not answer: ${textOf(error)}`,
          state: isLost(error)
            ? `Whether the keys were handed to ${move.target} is not known; ${move.target}'s boundary was not opened.`
            : 'Nothing was handed over by this process.',
          next: `homeregion resume ${journal.runId}   or   homeregion abort ${journal.runId}   (when the control plane answers)`,
        },
        { cause: error },
      )
    return await refuse(move, error)
  }
}

/** One step before the commit. @returns an end when the run waits for others, null to go on */
async function perform(move: ForcedMove, step: Step): Promise<ForcedEnd | null> {
  const { engine, journal, operator } = move
  operator.report({ type: 'step-started', step, key: null })
  const started = engine.clock.monotonicMs()
  if (step.action?.kind === 'isolate') await isolateSource(move, step.id)
  else if (step.action !== null && !move.doneSteps.has(step.id)) await applyAuthors(move, step)
  if (step.gate.some(use => use.check === 'approved') && !(await awaitApproval(move, step))) return await waits(move)
  const gate = await passGates(engine, journal.runId, [step], subjectOf(move), () => undefined)
  journal.buffer({ evidence: gate.evidence })
  if (gate.kind === 'not-passed') {
    if (gate.why === 'interrupted') throw new GateNotPassed(step, gate.evidence, 'interrupted')
    throw refusalOf(gate.evidence, [`step ${step.id} did not pass`])
  }
  if (step.confirm !== null && !move.doneSteps.has(step.id) && !(await operator.confirm(step, move.plan)))
    throw new HomeregionError('declined', { fact: `${step.id} was not confirmed`, next: 'homeregion plan failover' })
  operator.report({ type: 'step-passed', step, key: null, evidence: gate.evidence, tookMs: engine.clock.monotonicMs() - started })
  // Committed at once, so that whoever resumes need not ask again what was owned and confirmed here.
  if (gate.evidence.some(e => e.check === 'loss-acknowledged')) await journal.commit('acknowledged', {})
  return null
}

const APPROVAL_PAUSE_MS = 1_000

/** True when enough have agreed, or nobody need. A rejection ends the run; where nobody watches, others are not waited for. */
async function awaitApproval(move: ForcedMove, step: Step): Promise<boolean> {
  const { engine, operator, journal } = move
  const until = engine.clock.monotonicMs() + step.withinMs
  for (;;) {
    const { needed, given, of, rejectedBy } = await consent(move)
    if (rejectedBy !== null)
      throw new HomeregionError('approval-refused', {
        fact: `run ${journal.runId} was rejected by ${rejectedBy}`,
        next: `homeregion run show ${journal.runId}`,
      })
    if (!needed || given >= of) return true
    const leftMs = until - engine.clock.monotonicMs()
    if (!operator.watches || operator.interrupted() || leftMs <= 0) return false
    const bound = { runId: journal.runId, step: step.id, attemptId: null }
    const seen = await observe(engine, subjectOf(move), { check: 'approved', parameters: {} }, bound)
    operator.report({ type: 'gate-waiting', step, key: null, evidence: [seen], leftMs })
    await engine.clock.sleep(APPROVAL_PAUSE_MS)
  }
}

async function handOver(move: ForcedMove, step: Step): Promise<string> {
  move.operator.report({ type: 'step-started', step, key: null })
  return await handOverAll(move, step.id)
}
