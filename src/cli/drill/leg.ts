import { DRILL_MARK } from '../../domain/drill.ts'
import { isHomeregionError } from '../../domain/errors.ts'
import { isOpen } from '../../domain/journal.ts'
import { showKey } from '../../domain/key.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import type { Operator } from '../../engine/context.ts'
import { abortRun, resumeRun, startRun } from '../../engine/run.ts'
import type { CliContext, World } from '../context.ts'
import { createOperator } from '../operator.ts'
import { requestPlan } from '../plan-request.ts'
import { createProgress, noLiveLine } from '../render/progress.ts'
import { counted } from '../render/words.ts'
import { pinned } from '../settle-run.ts'

/** One way of a drill: how it ended, and when the first write was admitted at the target. */
export type Leg = {
  readonly runId: string | null
  readonly outcome: 'moved' | 'failed' | 'pre-empted'
  readonly recoveryMs: number | null
  readonly why: string | null
  /** What helps where it failed; null: nothing that is known. */
  readonly next: string | null
  /** Somebody asked for the keys, and they were moved all the same: it was too late to take them back. */
  readonly wanted: boolean
}

/** One planned move of the canary keys. Somebody who needs the keys meanwhile comes first: the drill gives way, and says so. */
export async function leg(
  context: CliContext,
  world: World,
  about: { readonly keys: readonly string[]; readonly to: string; readonly runbook: string; readonly interrupted: () => boolean },
): Promise<Leg> {
  const { keys, to, runbook, interrupted } = about
  const progress = createProgress(context.err, noLiveLine)
  const began = performance.now()
  let runId: string | null = null
  let admittedMs: number | null = null
  const others = watchForOthers(world.controlPlane, who => context.err.line(`${who} wants the keys: the drill gives way`))
  const answers = { yes: true, confirm: keys[0] ?? null, confirmCount: keys.length }
  const asked = createOperator(context, answers, progress.report, { interrupted, stop: () => undefined }, progress.close)
  const operator: Operator = {
    ...asked,
    interrupted: () => interrupted() || others.who() !== null,
    report: event => {
      if (event.type === 'run-opened') {
        runId = event.runId
        others.look(event.runId)
      }
      // Its gate is a write that the target admits; with several keys the last one counts.
      if (event.type === 'step-passed' && event.step.action?.kind === 'activate') admittedMs = performance.now() - began
      asked.report(event)
    },
  }
  const stopped = (): Pick<Leg, 'outcome' | 'why' | 'recoveryMs' | 'wanted' | 'next'> => ({
    ...{ recoveryMs: null, wanted: false, next: null },
    ...(others.who() === null
      ? { outcome: 'failed', why: 'interrupted' }
      : { outcome: 'pre-empted', why: `${others.who()} asked for the keys` }),
  })
  try {
    const plan = await requestPlan(context, keys, { to, runbook, confirmCount: keys.length })
    const reason = `${DRILL_MARK}${counted(keys.length, 'canary key')} to ${to}`
    const end = await startRun(world.engine(operator), plan, { reason, observeMs: 0 })
    const bad = end.keys.find(k => k.end.exit !== 'done')
    if (bad === undefined) {
      const who = others.who() ?? (await world.controlPlane.drillAskedToYield(end.runId))
      const why = who === null ? null : `${who} asked for the keys`
      return { runId: end.runId, outcome: 'moved', recoveryMs: admittedMs, why, next: null, wanted: who !== null }
    }
    if (end.exit === 'interrupted') {
      await letGo(world, { ...operator, interrupted: () => false }, end.runId, false)
      return { runId: end.runId, ...stopped() }
    }
    const why = `${showKey(bad.move.key)}: ${bad.end.fact}; ${bad.end.state}`
    return { runId: end.runId, outcome: 'failed', recoveryMs: null, why, next: bad.end.next, wanted: false }
  } catch (error) {
    if (!isHomeregionError(error)) throw error
    if (error.code === 'interrupted') return { runId, ...stopped() }
    const given = others.who() !== null || TAKEN.some(code => code === error.code)
    return {
      runId,
      outcome: given ? 'pre-empted' : 'failed',
      recoveryMs: null,
      why: error.text.fact,
      next: error.text.next ?? null,
      wanted: false,
    }
  } finally {
    others.stop()
    progress.close()
  }
}

/** Another run has the keys, or had them since. */
const TAKEN = ['key-busy', 'superseded', 'run-closed', 'run-leased', 'epoch-moved', 'plan-stale'] as const

/** Nothing of a drill is left for others to settle: what was begun is taken back; what was handed over already is opened where it is now. */
export async function letGo(world: World, operator: Operator, runId: string, takeOver: boolean): Promise<void> {
  const engine = world.engine(operator)
  const back = await abortRun(engine, runId, pinned(runId), { takeOver })
  if (!isOpen(back)) return
  await resumeRun(engine, runId, pinned(runId), { reason: null, observeMs: 0, takeOver: false })
}

// Whoever asks is a person at a terminal, and waits.
const LOOK_MS = 250

function watchForOthers(
  controlPlane: Pick<ControlPlane, 'drillAskedToYield'>,
  tell: (who: string) => void,
): { look(runId: string): void; who(): string | null; stop(): void } {
  let who: string | null = null
  let timer: NodeJS.Timeout | undefined
  const once = async (runId: string): Promise<void> => {
    // One that could not be asked for has to be asked for again; the run goes on meanwhile.
    const asked = await controlPlane.drillAskedToYield(runId).catch(() => null)
    if (asked === null || who !== null) return
    who = asked
    clearInterval(timer)
    tell(asked)
  }
  return {
    look: runId => {
      timer = setInterval(() => void once(runId), LOOK_MS)
      timer.unref()
    },
    who: () => who,
    stop: () => clearInterval(timer),
  }
}
