import { namesOfApprovers } from '../domain/approval.ts'
import { HomeregionError, isHomeregionError } from '../domain/errors.ts'
import type { Step } from '../domain/runbook.ts'
import { consent } from './checks/forced.ts'
import { observe } from './checks/observe.ts'
import { handOverAll, refusalOf, subjectOf, wasHandedOver } from './forced-activation.ts'
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
  const { engine, runbook } = move
  let begun = false
  try {
    await useToken(move)
    for (const step of runbook.steps) {
      if (engine.operator.interrupted()) return await interrupted(move)
      if (step.action?.kind === 'activate') {
        begun = true
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
    const handedOver = await authority(move)
    if (handedOver === true) return await afterCommit(move)
    if (handedOver === null) throw unanswered(move, error, begun && isHomeregionError(error, 'outcome-unknown'))
    // Whoever is to agree still can: what was done so far is kept for that.
    const step = runbook.steps.find(s => s.gate.some(use => use.check === 'approved'))
    if (step !== undefined && isHomeregionError(error, 'approval-refused') && (await isWaiting(move))) {
      await noteWaiting(move, step)
      return await waits(move, begun)
    }
    return await refuse(move, error)
  }
}

/** From now on it is this run's and no other's, however long others take to agree. */
async function useToken(move: ForcedMove): Promise<void> {
  const { engine, journal, acknowledgement } = move
  if (acknowledgement.kind !== 'token') return
  await engine.controlPlane.redeemAckToken(journal.lease(), acknowledgement.hash)
  await engine.fault('forced:token-used')
}

/**
 * What a commit whose answer was lost has done only the authority knows, and not while that commit may still be under way: with a new token it is
 * refused, or it was there before. @returns null while it cannot be asked
 */
async function authority(move: ForcedMove): Promise<boolean | null> {
  try {
    await move.journal.retake()
    return await wasHandedOver(move)
  } catch (error) {
    if (isForeign(error)) throw error
    return null
  }
}

/** Nothing is taken down: it may be what keeps two regions from writing. */
function unanswered(move: ForcedMove, error: unknown, sent: boolean): HomeregionError {
  const { source, target, journal } = move
  const stands = `What keeps ${source} from writing was left as it is`
  return new HomeregionError(
    'outcome-unknown',
    {
      fact: `the control plane does not answer: ${textOf(error)}`,
      state: sent
        ? `Whether the keys were handed to ${target} is not known; ${target}'s boundary was not opened. ${stands}.`
        : `Nothing was handed over: the commit was not sent. ${stands}.`,
      next: `homeregion resume ${journal.runId}   or   homeregion abort ${journal.runId}   (when the control plane answers)`,
    },
    { cause: error },
  )
}

/** One step before the commit. @returns an end when the run waits for others, null to go on */
async function perform(move: ForcedMove, step: Step): Promise<ForcedEnd | null> {
  const { engine, journal, operator } = move
  operator.report({ type: 'step-started', step, key: null })
  const started = engine.clock.monotonicMs()
  if (step.action?.kind === 'isolate') await isolateSource(move, step.id)
  else if (step.action !== null && !move.doneSteps.has(step.id)) await applyAuthors(move, step)
  if (step.gate.some(use => use.check === 'approved') && !(await awaitApproval(move, step))) return await waits(move, false)
  const gate = await passGates(engine, journal.runId, [step], subjectOf(move), () => undefined)
  journal.buffer({ evidence: gate.evidence })
  if (gate.kind === 'not-passed') {
    if (gate.why === 'interrupted') throw new GateNotPassed(step, gate.evidence, 'interrupted')
    throw refusalOf(gate.evidence, [`step ${step.id} did not pass`])
  }
  if (step.confirm !== null && !move.doneSteps.has(step.id) && !(await operator.confirm(step, move.plan)))
    throw new HomeregionError('declined', { fact: `${step.id} was not confirmed`, next: 'homeregion plan failover' })
  // Committed before it is said, so that whoever resumes need not ask again what was owned and confirmed here.
  if (gate.evidence.some(e => e.check === 'loss-acknowledged')) await journal.commit('acknowledged', {})
  operator.report({ type: 'step-passed', step, key: null, evidence: gate.evidence, tookMs: engine.clock.monotonicMs() - started })
  return null
}

const APPROVAL_PAUSE_MS = 1_000

/** True when enough have agreed, or nobody need. A rejection ends the run; where nobody watches, others are not waited for. */
async function awaitApproval(move: ForcedMove, step: Step): Promise<boolean> {
  const { engine, operator, journal } = move
  const until = engine.clock.monotonicMs() + step.withinMs
  for (let asked = false; ; asked = true) {
    const { policy, given, enough, rejectedBy } = await consent(move)
    if (rejectedBy !== null)
      throw new HomeregionError('approval-refused', {
        fact: `run ${journal.runId} was rejected by ${rejectedBy}`,
        next: `homeregion run show ${journal.runId}`,
      })
    if (enough) return true
    const who = namesOfApprovers(policy)
    if (!asked) await noteWaiting(move, step)
    const leftMs = until - engine.clock.monotonicMs()
    if (!operator.watches || operator.interrupted() || leftMs <= 0) return false
    // A line that stays, since the one that changes has no room for it.
    if (!asked) operator.report({ type: 'note', text: `waits for approval (${who}); they type: homeregion approve ${journal.runId}` })
    const text = `waits for approval ${given} of ${policy.needed} (${who})`
    operator.report({ type: 'gate-waiting', step, key: null, evidence: [], text, leftMs })
    await engine.clock.sleep(APPROVAL_PAUSE_MS)
  }
}

/** On record, so that `status` can ask those who are to agree. */
async function noteWaiting(move: ForcedMove, step: Step): Promise<void> {
  const { engine, journal } = move
  const bound = { runId: journal.runId, step: step.id, attemptId: null }
  const seen = await observe(engine, subjectOf(move), { check: 'approved', parameters: {} }, bound)
  journal.buffer({ evidence: [seen] })
  await journal.commit('waiting', {})
}

async function isWaiting(move: ForcedMove): Promise<boolean> {
  const { enough, rejectedBy } = await consent(move)
  return !enough && rejectedBy === null
}

async function handOver(move: ForcedMove, step: Step): Promise<string> {
  move.operator.report({ type: 'step-started', step, key: null })
  return await handOverAll(move, step.id)
}
