import { checkSpec } from '../../domain/checks.ts'
import { showDuration } from '../../domain/duration.ts'
import { type ActionUse, type CheckUse, REJOIN_ACTIONS, type Runbook, type Step } from '../../domain/runbook.ts'
import { renderTable } from './table.ts'

export function runbookListTable(runbooks: readonly Runbook[]): string {
  return renderTable(
    ['name', 'intent', 'steps', 'title'],
    runbooks.map(({ name, intent, steps, title }) => [name, intent, String(steps.length), title]),
  )
}

/** A runbook as an operator reads it: step by step, what it does and what must be seen before the next. */
export function runbookText({ name, intent, title, steps }: Runbook): string {
  const blocks = steps.map((step, i) => [`${i + 1}. ${step.id}: ${step.title}`, ...stepLines(step).map(line => `   ${line}`)].join('\n'))
  return [`${name} (${intent}): ${title}`, ...blocks].join('\n\n')
}

function stepLines(step: Step): readonly string[] {
  const gate = step.gate.length === 0 ? [] : [`gate, within ${showDuration(step.withinMs)}:`, ...checkLines(step.gate)]
  const watch = step.watch.length === 0 ? [] : [`watch, for ${showDuration(step.forMs)}:`, ...checkLines(step.watch)]
  return [
    ...(step.confirm === null ? [] : [`asks: ${CONFIRM[step.confirm]}`]),
    ...(step.action === null ? [] : [`does: ${actionText(step.action)}`]),
    ...gate,
    ...watch,
  ]
}

const CONFIRM = { plain: 'yes or no', 'type-key': 'type the key' } as const

function checkLines(uses: readonly CheckUse[]): readonly string[] {
  return uses.map(use => `- ${checkText(use)}: ${checkSpec(use.check).sentence}`)
}

export function checkText({ check, parameters }: CheckUse): string {
  const spec = checkSpec(check)
  const shown = Object.entries(parameters).map(
    ([name, value]) => `${name} ${spec.parameters[name]?.kind === 'duration' ? showDuration(value) : value}`,
  )
  return shown.length === 0 ? check : `${check} (${shown.join(', ')})`
}

export function actionText(action: ActionUse): string {
  switch (action.kind) {
    case 'fence-region':
      return `fence the whole source region: ${action.fences.join(', ')}`
    case 'exec':
    case 'notify':
      return `${action.kind} ${action.command.map(word => JSON.stringify(word)).join(' ')} (timeout ${showDuration(action.timeoutMs)})`
    case 'http':
      return `http ${action.method} ${action.url}, expects ${action.expectStatus} (timeout ${showDuration(action.timeoutMs)})`
    case 'sql':
      return `sql at the ${action.region}: ${action.statement.trim()} [${action.parameters.join(', ')}]`
    case 'pause':
      return `pause ${showDuration(action.forMs)}`
    default:
      return action.kind
  }
}

/** Mermaid: a box for each step, and on the way to the next one the gate that must be passed. */
export function runbookMermaid({ steps }: Runbook): string {
  const boxes = steps.map((step, i) => `  s${i + 1}[${quoted([step.id, ...(step.action === null ? [] : [actionLabel(step.action)])])}]`)
  const ways = steps.map((step, i) => {
    const label = step.gate.map(checkText)
    return `  s${i + 1} ${label.length === 0 ? '-->' : `-- ${quoted(label)} -->`} ${i + 1 < steps.length ? `s${i + 2}` : 'done([done])'}`
  })
  const turn = steps.findIndex(step => step.action?.kind === 'activate' || step.action?.kind === 'level')
  const style = turn < 0 ? [] : ['  classDef pointOfNoReturn stroke-width:4px', `  class s${turn + 1} pointOfNoReturn`]
  return ['flowchart TD', ...boxes, ...ways, ...style].join('\n')
}

function actionLabel(action: ActionUse): string {
  const own: readonly ActionUse['kind'][] = ['drain', 'fence', 'activate', ...REJOIN_ACTIONS]
  return own.includes(action.kind) ? `does ${action.kind}` : action.kind
}

/** Mermaid's own escapes: a title or an argument must not be able to add nodes. */
function quoted(lines: readonly string[]): string {
  const safe = lines.map(line => line.replace(/[^\w .,:;()/=+-]/gu, c => `#${c.codePointAt(0) ?? 0};`))
  return `"${safe.join('<br/>')}"`
}
