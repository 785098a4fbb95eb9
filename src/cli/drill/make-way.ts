import { setTimeout as wait } from 'node:timers/promises'
import { isDrillRun } from '../../domain/drill.ts'
import { formatMs } from '../../domain/duration.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import type { Json } from '../../domain/evidence.ts'
import { isOpen, type Run } from '../../domain/journal.ts'
import { abortRun } from '../../engine/run.ts'
import type { CliContext, World } from '../context.ts'
import { createOperator, NO_ANSWERS, UNWATCHED } from '../operator.ts'
import { printable } from '../render/error.ts'
import { createProgress, noLiveLine } from '../render/progress.ts'
import { holderIsGone, pinned } from '../settle-run.ts'

/** Does what a person asked for; where a drill has the keys, it is asked to give way first, and the work is begun anew on what is true then. */
export async function afterDrills(context: CliContext, work: () => Promise<void>): Promise<void> {
  const met = new Set<string>()
  for (;;) {
    try {
      return await work()
    } catch (error) {
      const runId = isHomeregionError(error, 'key-busy') ? error.fields['runId'] : undefined
      if (typeof runId !== 'string' || met.has(runId)) throw error
      met.add(runId)
      if (!(await makeWay(context, runId))) throw error
    }
  }
}

/** A drill looks twice a second and finishes the step it is in; taking a key back is a handful of round trips. */
const GIVING_WAY_MS = 30_000
const LOOK_MS = 200

/** @returns false when the run is no drill's. @throws `key-busy` when it still has its keys in the end: nothing is forced */
async function makeWay(context: CliContext, runId: string): Promise<boolean> {
  const { config } = await context.settings()
  const world = await context.connect()
  const { controlPlane } = world
  const first = await controlPlane.run(runId)
  if (first === null || !isDrillRun(first)) return false
  // One whose process is dead does not answer: its lease has to run out.
  const patienceMs = config.policy.runLeaseMs + GIVING_WAY_MS
  if (isOpen(first)) await controlPlane.askDrillToYield(runId)
  context.err.line(
    printable(
      `run ${runId} of ${whose(first)} has the keys, and is a drill: it was asked to give way (for at most ${formatMs(patienceMs)})`,
    ),
  )
  const began = performance.now()
  for (;;) {
    const run = await controlPlane.run(runId)
    const taken = run !== null && isOpen(run) && mayTake(world, run) && (await takeBack(context, world, run))
    if (run === null || taken || (!isOpen(run) && (await drillIsOver(world, first)))) {
      context.err.line(`the keys are free, after ${formatMs(performance.now() - began)}\n`)
      return true
    }
    if (performance.now() - began > patienceMs) {
      if (!isOpen(run)) return true
      throw stillHeld(run, patienceMs)
    }
    await wait(LOOK_MS)
  }
}

/** Between its two ways a drill holds nothing, and may move the keys once more: only its own record says that it does not. */
async function drillIsOver(world: World, run: Run): Promise<boolean> {
  if (holderIsGone(world, run)) return true
  return (await world.controlPlane.lastDrills()).some(drill => runsOf(drill.detail).includes(run.id))
}

function runsOf(detail: Json): readonly Json[] {
  const runs = typeof detail === 'object' && detail !== null && 'runs' in detail ? detail['runs'] : null
  return Array.isArray(runs) ? (runs as readonly Json[]) : []
}

/** By the rules that hold for every run: its lease is over, or its process was on this machine and is gone. */
function mayTake(world: World, run: Run): boolean {
  return !run.leaseAlive || holderIsGone(world, run)
}

/** Aborts a drill that nobody drives any more. @returns false when somebody else was faster */
async function takeBack(context: CliContext, world: World, run: Run): Promise<boolean> {
  context.err.line(printable(`nobody drives run ${run.id} any more: its keys are taken back`))
  const progress = createProgress(context.err, noLiveLine)
  const operator = createOperator(context, NO_ANSWERS, progress.report, UNWATCHED)
  const options = { takeOver: holderIsGone(world, run) }
  const end = await abortRun(world.engine(operator), run.id, pinned(run.id), options).catch((error: unknown) => {
    if (isHomeregionError(error) && OTHERS.some(code => code === error.code)) return null
    throw error
  })
  if (end === null) return false
  const left = end.keys.find(k => k.end.outcome === null && k.end.exit !== 'done')
  if (left === undefined || !isOpen(end)) return true
  throw new HomeregionError('needs-human', {
    fact: `the drill's run ${run.id} could not be ended: ${left.end.fact}`,
    state: left.end.state,
    ...(left.end.next === null ? {} : { next: `${left.end.next}, then the same command` }),
  })
}

const OTHERS = ['run-leased', 'run-closed', 'superseded'] as const

function stillHeld(run: Run, afterMs: number): HomeregionError {
  return new HomeregionError(
    'key-busy',
    {
      fact: `run ${run.id}, a drill of ${whose(run)}, still has the keys ${formatMs(afterMs)} after it was asked to give way, and keeps its lease`,
      state: 'No run was opened. Nothing of the drill was forced.',
      next: `homeregion abort ${run.id} --take-over   (ends it under its process), then the same command`,
    },
    { fields: { runId: run.id } },
  )
}

function whose({ holder, startedBy }: Run): string {
  return holder === null ? startedBy : `${holder.user}@${holder.host} pid ${holder.pid}`
}
