import { HomeregionError } from '../domain/errors.ts'
import type { ExitName } from '../domain/exit-codes.ts'
import type { KeyOutcome, Run, RunState } from '../domain/journal.ts'
import { showKey } from '../domain/key.ts'
import type { Plan, PlannedMove } from '../domain/plan.ts'
import type { Runbook, Step } from '../domain/runbook.ts'
import { applyAction } from './actions/table.ts'
import type { CheckSubject, Engine } from './context.ts'
import { passGates } from './gate.ts'
import { createKeyMove, type KeyMove } from './key-move.ts'
import { keepLease } from './lease-keeper.ts'
import { GateNotPassed, movedDetail, moveKey } from './move-key.ts'
import { type KeyEnd, recover, textOf } from './recover.ts'
import { rehearse } from './rehearse.ts'
import { createRunJournal, type RunJournal } from './run-journal.ts'
import { describeEvidence, partsOf } from './segments.ts'
import { settleKey } from './settle.ts'
import { undoKey } from './undo-key.ts'
import { watch } from './watch.ts'

export type RunEnd = {
  readonly runId: string
  readonly exit: ExitName
  readonly state: RunState
  readonly keys: readonly { readonly move: PlannedMove; readonly end: KeyEnd }[]
}

export type RunOptions = {
  readonly reason: string | null
  /** Replaces the runbook's own observation time; null keeps it. */
  readonly observeMs: number | null
}

/** Applies a plan that was shown and accepted. @throws `key-busy`, `plan-stale`, `declined`, `check-refused`, `superseded` */
export async function startRun(engine: Engine, plan: Plan, options: RunOptions): Promise<RunEnd> {
  const runbook = withoutDropped(engine, plan.pinned.runbook)
  const lease = await engine.controlPlane.openRun(plan, engine.holder, options.reason)
  const journal = createRunJournal(engine, lease)
  const keeper = keepLease(engine, journal)
  try {
    engine.operator.report({ type: 'run-opened', runId: lease.runId, plan })
    await engine.fault('open-run:after')
    const subject = subjectOf(engine, plan.moves)
    await beforeMoving(engine, journal, partsOf(runbook.steps).before, subject, plan, new Set())
    const fresh = plan.moves.map(move => ({ move, doneSteps: new Set<string>() }))
    return await moveAll(engine, journal, runbook, subject, fresh, options)
  } finally {
    keeper.stop()
  }
}

/** Takes over an open run, reads the world, settles what was left unfinished, and goes on. A confirmation is asked again only where no key has begun to move. */
export async function resumeRun(
  engine: Engine,
  runId: string,
  parse: (text: string) => Runbook,
  options: RunOptions & { readonly takeOver: boolean },
): Promise<RunEnd> {
  const { run, journal } = await takeOver(engine, runId, options.takeOver)
  const keeper = keepLease(engine, journal)
  try {
    const runbook = withoutDropped(engine, parse(run.runbookText))
    const open = run.moves.filter(m => m.outcome === null)
    const subject = subjectOf(engine, open)
    const settled = []
    for (const move of open) settled.push(await settleKey(engine, journal, partsOf(runbook.steps).perKey, subject, move))
    // Where no key has begun to move, nothing says that the confirmation was ever given: checks and question come again.
    if (run.moves.every(m => m.outcome === null) && settled.every(s => s.key.reached === 'nothing'))
      await beforeMoving(
        engine,
        journal,
        partsOf(runbook.steps).before,
        subject,
        planOf(engine, run, runbook),
        settled[0]?.doneSteps ?? new Set(),
      )
    return await moveAll(engine, journal, runbook, subject, settled, options, await earlier(engine, run))
  } finally {
    keeper.stop()
  }
}

/**
 * What the run had done before this process.
 * @throws `outcome-unknown` when an author's step after the last key was started and nothing can tell whether it finished
 */
async function earlier(engine: Engine, run: Run): Promise<Before> {
  const moved = run.moves.filter(m => m.outcome === 'moved')
  const attempts = (await engine.controlPlane.attempts(run.id)).filter(a => moved.some(m => m.key === a.key))
  const open = attempts.find(a => a.outcome === null)
  if (open !== undefined)
    throw new HomeregionError('outcome-unknown', {
      fact: `step ${open.step} (${open.action}) was started at ${open.startedAt} and never reported back; nothing can tell whether it finished`,
      state: `The keys of run ${run.id} that are listed as moved are moved; nothing was repeated.`,
      next: `homeregion run show ${run.id}`,
    })
  return { moved, doneSteps: new Set(attempts.filter(a => a.outcome === 'done').map(a => a.step)) }
}

/** Takes over an open run and takes every key of it back that is not the target's yet. */
export async function abortRun(
  engine: Engine,
  runId: string,
  parse: (text: string) => Runbook,
  options: { readonly takeOver: boolean },
): Promise<RunEnd> {
  const { run, journal } = await takeOver(engine, runId, options.takeOver)
  const keeper = keepLease(engine, journal)
  try {
    const runbook = parse(run.runbookText)
    const subject = subjectOf(engine, run.moves)
    const ends: { move: PlannedMove; end: KeyEnd }[] = []
    for (const move of run.moves.filter(m => m.outcome === null)) {
      const { key } = await settleKey(engine, journal, partsOf(runbook.steps).perKey, subject, move)
      const end = await abortKey(key)
      await journal.commit('key-end', end.outcome === null ? {} : { keyOutcomes: [{ key: move.key, outcome: end.outcome }] })
      report(engine, move, end)
      ends.push({ move, end })
    }
    // Every key was moved and only the run's own end is missing: an abort must not call that aborted.
    if (ends.length === 0) ends.push(...run.moves.filter(m => m.outcome === 'moved').map(move => ({ move, end: onlyForward(move, runId) })))
    return await close(engine, journal, ends, 'ABORTED')
  } finally {
    keeper.stop()
  }
}

async function abortKey(key: KeyMove): Promise<KeyEnd> {
  if (await undoKey(key))
    return {
      outcome: 'rolled-back',
      exit: 'done',
      fact: 'aborted',
      state: `${showKey(key.move.key)} is written at ${key.move.source}, epoch ${key.record.epoch}: read back, and a write as each writer is admitted.`,
      next: null,
    }
  return onlyForward(key.move, key.journal.runId)
}

function onlyForward(move: PlannedMove, runId: string): KeyEnd {
  return {
    outcome: null,
    exit: 'needsHuman',
    fact: `${showKey(move.key)} cannot be taken back: ownership was handed over`,
    state: `It is ${move.target}'s since epoch ${move.epoch + 1}; there is only forward.`,
    next: `homeregion resume ${runId}`,
  }
}

async function takeOver(engine: Engine, runId: string, force: boolean): Promise<{ run: Run; journal: RunJournal }> {
  const lease = await engine.controlPlane.takeRun(runId, engine.holder, force)
  await engine.fault('take-run:after')
  const run = await engine.controlPlane.run(runId)
  if (run === null) throw new HomeregionError('unknown-run', { fact: `there is no run ${runId}`, next: 'homeregion run list' })
  return { run, journal: createRunJournal(engine, lease) }
}

/** Preflight and confirmation: nothing has been touched, so every way out of here leaves the keys as they were. */
async function beforeMoving(
  engine: Engine,
  journal: RunJournal,
  steps: readonly Step[],
  subject: CheckSubject,
  plan: Plan,
  doneSteps: ReadonlySet<string>,
): Promise<void> {
  const refuse = async (error: HomeregionError): Promise<never> => {
    await journal.commit('refuse', { runState: 'REFUSED', keyOutcomes: subject.moves.map(m => ({ key: m.key, outcome: 'not-moved' })) })
    throw error
  }
  for (const step of steps) {
    engine.operator.report({ type: 'step-started', step, key: null })
    const started = engine.clock.monotonicMs()
    await applyOnce(engine, journal, step, subject, doneSteps)
    const first = { ...subject, move: subject.moves[0] ?? null }
    const gate = await passGates(engine, journal.runId, [step], first, () => undefined)
    journal.buffer({ evidence: gate.evidence })
    if (gate.kind === 'not-passed') {
      const code = gate.why === 'interrupted' ? 'interrupted' : 'check-refused'
      await refuse(
        new HomeregionError(
          code,
          {
            fact: `${step.id}: ${describeEvidence(gate.evidence)}`,
            state: 'Nothing was moved; no boundary was touched.',
            next: 'homeregion doctor',
          },
          { fields: { evidence: gate.evidence } },
        ),
      )
    }
    if (step.confirm !== null && !(await engine.operator.confirm(step, plan)))
      await refuse(
        new HomeregionError('declined', {
          fact: `${step.id} was not confirmed`,
          state: 'Nothing was moved; no boundary was touched.',
          next:
            subject.moves.length === 1
              ? `homeregion transfer ${showKey(subject.moves[0]?.key ?? '')} --to ${subject.moves[0]?.target ?? ''}`
              : 'homeregion transfer … with the number of keys, when asked',
        }),
      )
    engine.operator.report({ type: 'step-passed', step, key: null, evidence: gate.evidence, tookMs: engine.clock.monotonicMs() - started })
  }
}

/** The author's own action of a step that stands before or after the keys' own steps: once a run, journalled under its first key. */
async function applyOnce(
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

/** What an earlier process of the same run has done: its keys are not moved again, but what stands after the last one is still owed. */
type Before = { readonly moved: readonly PlannedMove[]; readonly doneSteps: ReadonlySet<string> }

type Pending = { readonly move: PlannedMove; readonly doneSteps: ReadonlySet<string>; readonly key?: KeyMove }

async function moveAll(
  engine: Engine,
  journal: RunJournal,
  runbook: Runbook,
  subject: CheckSubject,
  pending: readonly Pending[],
  options: RunOptions,
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
    report(engine, move, end)
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
  return await close(engine, journal, ends, 'DONE')
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

/** Worst first: what needs somebody decides the exit code. */
const SEVERITY: readonly ExitName[] = ['unknown', 'needsHuman', 'interrupted', 'rolledBack', 'done']

async function close(
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

function report(engine: Engine, move: PlannedMove, end: KeyEnd): void {
  engine.operator.report({
    type: 'key-ended',
    move,
    outcome: end.outcome ?? 'unknown',
    detail: end.outcome === 'moved' ? end.state : `${end.fact}. ${end.state}`,
  })
}

function subjectOf(engine: Engine, moves: readonly PlannedMove[]): CheckSubject {
  return { moves, move: null, barrierEventId: null, startedMonotonicMs: engine.clock.monotonicMs(), standing: [], memory: new Map() }
}

/** The plan that a run pinned. */
function planOf(engine: Engine, run: Run, runbook: Runbook): Plan {
  const pinned = { runbook, text: run.runbookText, sha256: run.runbookSha256, origin: `run ${run.id}` }
  return { id: run.planId, pinned, moves: run.moves, alreadyThere: [], dropped: engine.policy.dropped }
}

/** Checks that the plan dropped in the open, with the reason. */
function withoutDropped(engine: Engine, runbook: Runbook): Runbook {
  const dropped = new Set(engine.policy.dropped.map(d => d.check))
  const kept = (uses: Step['gate']) => uses.filter(use => !dropped.has(use.check))
  return { ...runbook, steps: runbook.steps.map(step => ({ ...step, gate: kept(step.gate), watch: kept(step.watch) })) }
}
