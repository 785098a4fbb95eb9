import type { Evidence } from '../domain/evidence.ts'
import { showKey } from '../domain/key.ts'
import type { Plan } from '../domain/plan.ts'
import { firstLook } from '../engine/first-look.ts'
import type { CliContext } from './context.ts'
import { createOperator, NO_ANSWERS, UNWATCHED } from './operator.ts'
import { type PlanFlags, requestPlan } from './plan-request.ts'
import { planJson, planText } from './render/plan.ts'
import { evidenceLine } from './render/progress.ts'
import { fittedLines } from './render/wrapped.ts'

/** Computes the plan, looks at its first checks, prints both. `transfer --dry-run` is the same. */
export async function showPlan(context: CliContext, keys: readonly string[], flags: PlanFlags): Promise<Plan> {
  const format = context.format('json')
  const plan = await requestPlan(context, keys, flags)
  const world = await context.connect()
  const nobody = createOperator(context, NO_ANSWERS, () => undefined, UNWATCHED)
  const evidence = await firstLook(world.engine(nobody), plan)
  if (format === 'json') context.out.line(JSON.stringify({ ...(planJson(plan) as object), firstLook: evidence }))
  else
    context.out.line(
      [
        fittedLines(context.out, planText(plan)),
        '',
        'first look',
        ...evidence.map(e => evidenceLine(context.out, e)),
        '',
        fittedLines(context.out, closing(plan, evidence)),
      ].join('\n'),
    )
  return plan
}

/** The command that applies the plan, or why it would be refused. What was not seen at one look, a transfer waits for. */
function closing(plan: Plan, evidence: readonly Evidence[]): string {
  const of = (verdict: Evidence['verdict']) => evidence.filter(e => e.verdict === verdict).map(e => e.check)
  const [failed, unseen] = [of('fail'), of('unknown')]
  if (failed.length > 0) return `Nothing was changed. A transfer would be refused now: ${failed.join(', ')}.\nnext:  homeregion doctor`
  const keys = plan.moves.length === 1 ? showKey(plan.moves[0]?.key ?? '') : 'KEY…'
  const waits = unseen.length === 0 ? '' : ` Not seen at one look, a transfer waits for it: ${unseen.join(', ')}.`
  return `Nothing was changed.${waits} To apply: homeregion transfer ${keys} --to ${plan.moves[0]?.target ?? 'REGION'} --plan ${plan.id}`
}
