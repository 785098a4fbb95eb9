import { HomeregionError } from '../domain/errors.ts'
import type { Run } from '../domain/journal.ts'
import { showKey } from '../domain/key.ts'
import type { Plan, PlannedMove } from '../domain/plan.ts'
import type { Runbook, Step } from '../domain/runbook.ts'
import type { CheckSubject, Engine } from './context.ts'
import type { KeyMove } from './key-move.ts'
import { keepLease } from './lease-keeper.ts'
import { type Before, moveAll } from './move-keys.ts'
import { beforeMoving } from './preflight.ts'
import type { KeyEnd } from './recover.ts'
import { closeRun, type RunEnd, reportEnd } from './run-end.ts'
import { createRunJournal, type RunJournal } from './run-journal.ts'
import { partsOf } from './segments.ts'
import { settleKey } from './settle.ts'
import { drawAbove } from './tokens.ts'
import { undoKey } from './undo-key.ts'

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
    await drawAbove(engine, journal, ...regionsAndKeys(plan.moves))
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
      reportEnd(engine, move, end)
      ends.push({ move, end })
    }
    // Every key was moved and only the run's own end is missing: an abort must not call that aborted.
    if (ends.length === 0) ends.push(...run.moves.filter(m => m.outcome === 'moved').map(move => ({ move, end: onlyForward(move, runId) })))
    return await closeRun(engine, journal, ends, 'ABORTED')
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
  const journal = createRunJournal(engine, lease)
  await drawAbove(engine, journal, ...regionsAndKeys(run.moves))
  return { run, journal }
}

function regionsAndKeys(moves: readonly PlannedMove[]): [regions: readonly string[], keys: readonly string[]] {
  return [moves.flatMap(m => [m.source, m.target]), moves.map(m => m.key)]
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
