import { OUTSIDE_FENCES, type OutsideFence } from '../domain/checks.ts'
import { HomeregionError, isHomeregionError } from '../domain/errors.ts'
import type { Evidence } from '../domain/evidence.ts'
import type { ExitName } from '../domain/exit-codes.ts'
import type { AttemptEnd, Run, RunState } from '../domain/journal.ts'
import type { Acknowledgement, LossEstimate } from '../domain/loss.ts'
import type { Plan } from '../domain/plan.ts'
import type { Runbook, Step } from '../domain/runbook.ts'
import { applyAction } from './actions/table.ts'
import { consent, forcedChecks } from './checks/forced.ts'
import { observe } from './checks/observe.ts'
import type { Engine } from './context.ts'
import { announceAll, handOverAll, isLost, openAll, refusalOf, subjectOf, wasHandedOver } from './forced-activation.ts'
import type { Attestation, ForcedEnd, ForcedMove, ForcedOperator, ForcedSettings } from './forced-move.ts'
import { passGates } from './gate.ts'
import { createKeyMove } from './key-move.ts'
import { keepLease } from './lease-keeper.ts'
import { GateNotPassed } from './move-key.ts'
import { externalFences, isolateSource, releaseSource } from './outside-fence.ts'
import { textOf } from './recover.ts'
import { createRunJournal, type RunJournal } from './run-journal.ts'
import { watch } from './watch.ts'

export type ForcedStart = {
  readonly plan: Plan
  readonly estimate: LossEstimate
  readonly fence: OutsideFence
  readonly acknowledgement: Acknowledgement
  readonly attestation: Attestation | null
  readonly reason: string | null
  readonly observeMs: number | null
  /** Begun by an agent, with no person behind it. */
  readonly automatic?: boolean
}

type Parts = { readonly engine: Engine; readonly operator: ForcedOperator; readonly settings: ForcedSettings }

/** Opens the run and takes it as far as it goes. Before the commit every way out changes nothing; after it there is only forward. */
export async function startForced({ engine, operator, settings }: Parts, start: ForcedStart): Promise<ForcedEnd> {
  const { plan, estimate, fence } = start
  const lease = await engine.controlPlane.openRun(plan, engine.holder, start.reason, { seize: true })
  const journal = createRunJournal(engine, lease)
  const move = createMove({ engine, operator, settings }, journal, plan.pinned.runbook, {
    ...{ plan, fence, acknowledgement: start.acknowledgement, attestation: start.attestation, observeMs: start.observeMs },
    automatic: start.automatic === true,
    ...{ doneSteps: new Set<string>(), keys: estimate.keys.map(({ key, epoch }) => ({ key, epoch })) },
  })
  operator.report({ type: 'run-opened', runId: lease.runId, plan })
  return await kept(move, async () => {
    await engine.fault('open-run:after')
    if (move.attestation !== null) journal.buffer({ evidence: [await attestationOf(move)] })
    return await beforeCommit(move)
  })
}

export type ForcedResume = {
  readonly run: Run
  readonly runbook: Runbook
  readonly fence: OutsideFence
  readonly acknowledgement: Acknowledgement
  readonly attestation: Attestation | null
  readonly doneSteps: ReadonlySet<string>
  readonly observeMs: number | null
  readonly takeOver: boolean
}

/** Takes the run over and goes on: from the estimate where nothing was committed, from opening the target where it was. */
export async function resumeForced(parts: Parts, resume: ForcedResume): Promise<ForcedEnd> {
  const move = await takeOver(parts, resume)
  return await kept(move, async () => {
    if (await settle(move)) return await afterCommit(move)
    await sinceItWasSaid(move)
    return await beforeCommit(move)
  })
}

async function attestationOf(move: ForcedMove): Promise<Evidence> {
  const bound = { runId: move.journal.runId, step: 'attest', attemptId: null }
  return await observe(move.engine, subjectOf(move), { check: 'source-attested', parameters: {} }, bound)
}

/**
 * A word that an earlier process recorded counts from when it was said, so that waiting for others makes nothing worse. How long ago that is
 * says the control plane's clock alone: between that record and one that is made now.
 */
async function sinceItWasSaid(move: ForcedMove): Promise<void> {
  const { engine, journal } = move
  if (move.attestation === null) return
  const now = await attestationOf(move)
  await journal.commit('attested', { evidence: [now] })
  const said = (await engine.controlPlane.evidence(journal.runId)).filter(e => e.check === 'source-attested' && e.verdict === 'pass')
  const [first, last] = [said.find(e => e.facts?.['reason'] === now.facts?.['reason']), said.at(-1)]
  if (first === undefined || last === undefined) return
  const agoMs = Date.parse(last.recordedAt) - Date.parse(first.recordedAt) + Number(first.facts?.['ageMs'] ?? 0)
  move.attestation = { ...move.attestation, saidAtMs: now.asOfMonotonicMs - Math.max(0, agoMs) }
}

/** Before the commit: what the run put up comes down and nothing was handed over. After it there is no way back. */
export async function abortForced(parts: Parts, resume: ForcedResume): Promise<ForcedEnd> {
  const move = await takeOver(parts, resume)
  return await kept(move, async () => {
    if (await settle(move)) return onlyForward(move, 'it cannot be taken back: ownership was handed over')
    await giveUp(move, 'ABORTED')
    return end(move, 'done', 'ABORTED', 'aborted', `Nothing was handed over; the keys are still ${move.source}'s on record.`, null)
  })
}

async function takeOver({ engine, operator, settings }: Parts, resume: ForcedResume): Promise<ForcedMove> {
  const { run } = resume
  const lease = await engine.controlPlane.takeRun(run.id, engine.holder, resume.takeOver)
  await engine.fault('take-run:after')
  const journal = createRunJournal(engine, lease)
  const pinned = { runbook: resume.runbook, text: run.runbookText, sha256: run.runbookSha256, origin: `run ${run.id}` }
  const plan: Plan = { id: run.planId, pinned, moves: run.moves, alreadyThere: [], dropped: [] }
  return createMove({ engine, operator, settings }, journal, resume.runbook, {
    // Whoever resumes is a person.
    automatic: false,
    ...{ plan, fence: resume.fence, acknowledgement: resume.acknowledgement, attestation: resume.attestation },
    ...{ doneSteps: resume.doneSteps, observeMs: resume.observeMs, keys: run.moves.map(({ key, epoch }) => ({ key, epoch })) },
  })
}

function createMove(
  { engine, operator, settings }: Parts,
  journal: RunJournal,
  runbook: Runbook,
  known: Pick<ForcedMove, 'plan' | 'fence' | 'acknowledgement' | 'attestation' | 'doneSteps' | 'keys' | 'observeMs' | 'automatic'>,
): ForcedMove {
  const [first] = known.plan.moves
  if (first === undefined) throw new RangeError('a forced failover without a key')
  const move: ForcedMove = {
    ...known,
    ...{ operator, settings, journal, moves: known.plan.moves, source: first.source, target: first.target },
    engine: { ...engine, checks: forcedChecks(() => move) },
    runbook: withoutOthers(runbook, known.fence),
    ...{ vantage: null, estimate: null, heldAtMs: null, records: [], openAttempt: null },
  }
  return move
}

/** The plan named the one fence from outside that it stands on, and dropped the others in the open. */
function withoutOthers(runbook: Runbook, fence: OutsideFence): Runbook {
  const others = new Set<string>(OUTSIDE_FENCES.filter(check => check !== fence))
  return { ...runbook, steps: runbook.steps.map(step => ({ ...step, gate: step.gate.filter(use => !others.has(use.check)) })) }
}

async function kept(move: ForcedMove, work: () => Promise<ForcedEnd>): Promise<ForcedEnd> {
  const keeper = keepLease(move.engine, move.journal)
  try {
    return await work()
  } finally {
    keeper.stop()
  }
}

/** What an earlier process left without an outcome. @returns true when its commit had arrived: the keys are the target's */
async function settle(move: ForcedMove): Promise<boolean> {
  const { engine, journal } = move
  const handedOver = await wasHandedOver(move)
  const open = (await engine.controlPlane.attempts(journal.runId)).filter(a => a.outcome === null)
  const strange = open.find(a => a.action !== 'isolate' && a.action !== 'activate')
  if (strange !== undefined)
    throw new HomeregionError('outcome-unknown', {
      fact: `step ${strange.step} (${strange.action}) was started at ${strange.startedAt} and never reported back; nothing can tell whether it finished`,
      state: handedOver ? `The keys are ${move.target}'s; nothing was repeated.` : 'Nothing was handed over; nothing was repeated.',
      next: `homeregion abort ${journal.runId}`,
    })
  move.openAttempt = handedOver ? (open.find(a => a.action === 'activate')?.id ?? null) : null
  // Fencing from outside can be done again; that it was begun is all that is known.
  const ends: readonly AttemptEnd[] = open
    .filter(a => a.id !== move.openAttempt)
    .map(({ id }) => ({ id, outcome: 'unknown', result: { settledBy: 'resume' } }))
  if (ends.length > 0) await journal.commit('settle', { ends })
  return handedOver
}

async function beforeCommit(move: ForcedMove): Promise<ForcedEnd> {
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

async function applyAuthors(move: ForcedMove, step: Step): Promise<void> {
  const [first] = move.moves
  const [record] = first === undefined ? [] : await move.engine.controlPlane.ownership([first.key])
  if (first === undefined || record === undefined) return
  await applyAction(createKeyMove(move.engine, move.journal, [step], subjectOf(move), first, record), step)
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

async function waits(move: ForcedMove): Promise<ForcedEnd> {
  const { engine, journal } = move
  const { given, of } = await consent(move)
  await journal.commit('waiting', {})
  await engine.controlPlane.release(journal.lease())
  const why = `run ${journal.runId} waits for approval: ${given} of ${of}`
  const state = `Nothing was handed over; ${move.source} still owns the keys on record.`
  return end(
    move,
    'waiting',
    'OPEN',
    why,
    state,
    `homeregion approve ${journal.runId}   (another login), then   homeregion resume ${journal.runId}`,
  )
}

async function interrupted(move: ForcedMove): Promise<ForcedEnd> {
  const { engine, journal } = move
  await journal.commit('interrupted', {})
  await engine.controlPlane.release(journal.lease())
  const state = `Nothing was handed over; ${move.source} still owns the keys on record. No fence was released.`
  return end(
    move,
    'interrupted',
    'OPEN',
    'interrupted; the state is saved',
    state,
    `homeregion resume ${journal.runId}   or   homeregion abort ${journal.runId}`,
  )
}

/** Nothing was handed over: what this run put up comes down, and the error says so. */
async function refuse(move: ForcedMove, error: unknown): Promise<never> {
  const { journal } = move
  const coded = isHomeregionError(error) ? error : null
  try {
    await giveUp(move, 'REFUSED')
  } catch (second) {
    if (isForeign(second)) throw second
    throw new HomeregionError(
      'needs-human',
      {
        fact: `${textOf(error)}; and what the run had put up could not be taken down: ${textOf(second)}`,
        state: `Nothing was handed over; ${move.source} still owns the keys on record.`,
        next: `homeregion abort ${journal.runId}`,
      },
      { cause: error },
    )
  }
  if (coded === null) throw error
  const released = move.fence === 'lease-over' ? ' Its lease may be granted again.' : ''
  throw new HomeregionError(
    coded.code,
    {
      fact: coded.text.fact,
      state: `Nothing was handed over: ${move.source} still owns the keys on record.${released}`,
      next: nextAfter(move, coded),
    },
    { cause: coded, fields: { ...coded.fields, runId: journal.runId } },
  )
}

function nextAfter(move: ForcedMove, error: HomeregionError): string {
  const command = `homeregion failover --from ${move.source} --to ${move.target}`
  if (error.code === 'source-answers') return `${command}   (without --force: it loses nothing)`
  if (error.code === 'loss-not-acknowledged' || error.code === 'ack-token-refused')
    return `homeregion plan failover --from ${move.source} --to ${move.target}`
  return error.text.next ?? `homeregion run show ${move.journal.runId}`
}

async function giveUp(move: ForcedMove, runState: 'REFUSED' | 'ABORTED'): Promise<void> {
  const { journal, engine } = move
  await journal.retake()
  await releaseSource(move, externalFences(move))
  await engine.fault('forced:released')
  await journal.commit('give-up', { runState, keyOutcomes: move.moves.map(m => ({ key: m.key, outcome: 'not-moved' as const })) })
}

/** The keys are the target's. Whatever fails from here on leaves the run open for `resume`, and says so. */
async function afterCommit(move: ForcedMove): Promise<ForcedEnd> {
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
    const next = `homeregion rejoin ${move.source}   (when it is back; reconcile is pending)`
    const data = `${move.target} owns and writes ${count(move)} (read back, probed as its writers); ${move.source} is in exile.`
    if (seen !== null) return end(move, seen.end.exit, 'DONE', seen.end.fact, data, next)
    return end(move, 'done', 'DONE', `${count(move)} moved from ${move.source} to ${move.target}`, data, next)
  } catch (error) {
    if (isForeign(error)) throw error
    return await leftOpen(move, error)
  }
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

function onlyForward(move: ForcedMove, fact: string): ForcedEnd {
  const state = `${count(move)} are ${move.target}'s since the commit, there is only forward; that ${move.target} writes them was not confirmed.`
  return end(move, 'needsHuman', 'NEEDS_HUMAN', fact, state, `homeregion resume ${move.journal.runId}`)
}

function end(move: ForcedMove, exit: ExitName, state: RunState, fact: string, data: string, next: string | null): ForcedEnd {
  const { source, target, fence, moves, records } = move
  const owned = new Set(records.filter(r => r.homeRegion === target).map(r => r.key))
  const blocked = move.estimate?.blocked ?? []
  return {
    runId: move.journal.runId,
    exit,
    state,
    source,
    target,
    fence,
    blocked,
    fact,
    data,
    next,
    moved: moves.filter(m => owned.has(m.key)),
  }
}

function count({ moves }: ForcedMove): string {
  return `${moves.length} ${moves.length === 1 ? 'key' : 'keys'}`
}

function isForeign(error: unknown): boolean {
  return isHomeregionError(error) && (['superseded', 'run-leased', 'run-closed'] as const).some(code => code === error.code)
}
