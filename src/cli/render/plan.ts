import { checkSpec } from '../../domain/checks.ts'
import { formatMs } from '../../domain/duration.ts'
import { showKey } from '../../domain/key.ts'
import type { Plan } from '../../domain/plan.ts'
import type { CheckUse, Step } from '../../domain/runbook.ts'
import { describeAction } from '../../engine/actions/table.ts'

/** Keys shown one by one; more are a sample, with their number. */
const KEYS_SHOWN = 8

/** The plan as an operator reads it before agreeing to it. */
export function planText(plan: Plan): string {
  const [first] = plan.moves
  const title = first === undefined ? 'Nothing to do' : `${plan.pinned.runbook.title}: ${keysText(plan)}`
  const dropped = new Map(plan.dropped.map(d => [d.check, d.reason]))
  const lines = [
    `Plan ${plan.id}  ${title}`,
    `runbook ${plan.pinned.origin} (sha256 ${plan.pinned.sha256.slice(0, 12)})`,
    '',
    ...plan.moves.slice(0, KEYS_SHOWN).map(m => `  ${showKey(m.key)}  ${m.source} -> ${m.target}  epoch ${m.epoch} -> ${m.epoch + 1}`),
    ...(plan.moves.length > KEYS_SHOWN ? [`  +${plan.moves.length - KEYS_SHOWN} more`] : []),
    ...(plan.alreadyThere.length > 0
      ? [
          `  ${plan.alreadyThere.length} at home there already: ${plan.alreadyThere
            .slice(0, 3)
            .map(r => showKey(r.key))
            .join(', ')}`,
        ]
      : []),
    '',
    ...plan.pinned.runbook.steps.flatMap((step, i) => stepLines(step, i, plan, dropped)),
  ]
  return lines.join('\n')
}

export function keysText(plan: Plan): string {
  const [first] = plan.moves
  if (first === undefined) return 'no key'
  const sources = [...new Set(plan.moves.map(m => m.source))].join(', ')
  return `${plan.moves.length === 1 ? showKey(first.key) : `${plan.moves.length} keys`} from ${sources} to ${first.target}`
}

export function planJson(plan: Plan): unknown {
  return {
    plan: plan.id,
    runbook: { name: plan.pinned.runbook.name, origin: plan.pinned.origin, sha256: plan.pinned.sha256, intent: plan.pinned.runbook.intent },
    moves: plan.moves,
    alreadyThere: plan.alreadyThere.map(r => r.key),
    dropped: plan.dropped,
    steps: plan.pinned.runbook.steps.map(s => ({
      id: s.id,
      title: s.title,
      action: s.action?.kind ?? null,
      gate: s.gate.map(g => g.check),
      withinMs: s.withinMs,
      confirm: s.confirm,
    })),
  }
}

function stepLines(step: Step, index: number, plan: Plan, dropped: ReadonlyMap<string, string>): readonly string[] {
  const first = plan.moves[0]
  const checks = [...step.gate, ...step.watch]
  return [
    `  ${String(index + 1).padStart(2)} ${step.id}: ${step.title}`,
    ...(step.action === null || first === undefined ? [] : [`       does   ${describeAction(step.action, first)}`]),
    ...(step.confirm === null
      ? []
      : [`       asks   ${step.confirm === 'plain' ? 'yes or no' : plan.moves.length === 1 ? 'type the key' : 'type the number of keys'}`]),
    ...checks.map(use => checkLine(use, dropped)),
    ...(checks.length === 0
      ? []
      : [`       ${step.gate.length > 0 ? `within ${formatMs(step.withinMs)}` : `for    ${formatMs(step.forMs)}`}`]),
  ]
}

function checkLine(use: CheckUse, dropped: ReadonlyMap<string, string>): string {
  const reason = dropped.get(use.check)
  if (reason !== undefined) return `       not    ${use.check} (${reason})`
  const parameters = checkSpec(use.check).parameters
  const shown = Object.entries(use.parameters).map(
    ([name, value]) => `${name} ${parameters[name]?.kind === 'duration' ? formatMs(value) : value}`,
  )
  return `       needs  ${use.check}${shown.length === 0 ? '' : ` (${shown.join(', ')})`}`
}
