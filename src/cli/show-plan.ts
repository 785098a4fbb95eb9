import { showKey } from '../domain/key.ts'
import type { Plan } from '../domain/plan.ts'
import { firstLook } from '../engine/first-look.ts'
import type { CliContext } from './context.ts'
import { createOperator } from './operator.ts'
import { type PlanFlags, requestPlan } from './plan-request.ts'
import { planJson, planText } from './render/plan.ts'
import { evidenceLine } from './render/progress.ts'
import { fittedLines } from './render/wrapped.ts'

/** Computes the plan, looks at its first checks, prints both. `transfer --dry-run` is the same. */
export async function showPlan(context: CliContext, keys: readonly string[], flags: PlanFlags): Promise<Plan> {
  const format = context.format('json')
  const plan = await requestPlan(context, keys, flags)
  const world = await context.connect()
  const nobody = createOperator(context, { yes: false, confirm: null, confirmCount: null }, () => undefined, {
    interrupted: () => false,
    stop: () => undefined,
  })
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
        fittedLines(
          context.out,
          closing(
            plan,
            evidence.filter(e => e.verdict !== 'pass').map(e => e.check),
          ),
        ),
      ].join('\n'),
    )
  return plan
}

/** The command that applies the plan, or why it would be refused. */
function closing(plan: Plan, blocked: readonly string[]): string {
  if (blocked.length > 0) return `Nothing was changed. A transfer would be refused now: ${blocked.join(', ')}.\nnext:  homeregion doctor`
  const keys = plan.moves.length === 1 ? showKey(plan.moves[0]?.key ?? '') : 'KEY…'
  return `Nothing was changed. To apply: homeregion transfer ${keys} --to ${plan.moves[0]?.target ?? 'REGION'} --plan ${plan.id}`
}
