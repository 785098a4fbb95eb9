import { DRILL_MARK } from '../domain/drill.ts'
import { HomeregionError } from '../domain/errors.ts'
import { startRun } from '../engine/run.ts'
import { partsOf } from '../engine/segments.ts'
import type { CliContext } from './context.ts'
import { afterDrills } from './drill/make-way.ts'
import { requireNoExile } from './failover/who-answers.ts'
import { requireAnswers } from './operator.ts'
import { requestPlan } from './plan-request.ts'
import { planText } from './render/plan.ts'
import { fittedLines } from './render/wrapped.ts'
import { answersOf, drive, type TransferFlags } from './run-command.ts'
import { showPlan } from './show-plan.ts'

export async function transfer(context: CliContext, keys: readonly string[], flags: TransferFlags): Promise<void> {
  if (flags.dryRun === true) {
    await showPlan(context, keys, flags)
    return
  }
  if (flags.reason?.startsWith(DRILL_MARK) === true)
    throw new HomeregionError('usage', {
      fact: `a reason that begins with "${DRILL_MARK}" marks the runs of drills, which give way to everybody`,
      state: 'Nothing was changed.',
      next: 'the same command with another --reason',
    })
  await afterDrills(context, async () => await planAndMove(context, keys, flags))
}

async function planAndMove(context: CliContext, keys: readonly string[], flags: TransferFlags): Promise<void> {
  const plan = await requestPlan(context, keys, flags)
  const world = await context.connect()
  await requireNoExile(world.controlPlane, flags.to)
  if (flags.plan !== undefined && flags.plan !== plan.id)
    throw new HomeregionError('plan-stale', {
      fact: `plan ${flags.plan} is stale: ownership or the runbook has changed, the plan is now ${plan.id}`,
      state: 'Nothing was changed.',
      next: 'homeregion plan … and read it again',
    })
  if (plan.moves.length === 0) {
    context.out.line(`Nothing to do: every key is at home in ${flags.to} already.`)
    return
  }
  const answers = answersOf(flags)
  requireAnswers(context, partsOf(plan.pinned.runbook.steps).before, plan, answers)
  if (context.err.isTerminal) context.err.line(`${fittedLines(context.err, planText(plan))}\n`)
  await drive(
    context,
    answers,
    async operator => await startRun(world.engine(operator), plan, { reason: flags.reason ?? null, observeMs: flags.observe ?? null }),
  )
}
