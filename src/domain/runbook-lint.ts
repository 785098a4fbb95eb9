import type { CheckName } from './checks.ts'
import { absent, type Finding, finding, type Places, passed, type Rule } from './lint-finding.ts'
import type { ActionKind, Runbook, Step } from './runbook.ts'
import { FAILOVER_RULES } from './runbook-lint-failover.ts'
import { REJOIN_ORDER, REJOIN_RULES } from './runbook-lint-rejoin.ts'

/** One reason why a runbook is refused. `path` leads to the place in the file (and in `Runbook`, whose shape follows the file's). */
export type LintProblem = Finding & { readonly rule: LintRule }

/** Longest deadline of a gate, and of one command or request: beyond it nobody is watching any more. */
export const WITHIN_LIMIT_MS = 3_600_000
/** Longest observation. */
export const FOR_LIMIT_MS = 86_400_000

const PREFLIGHT: readonly CheckName[] = ['boundary-installed', 'fence-covers-writers']
const CATCH_UP: readonly CheckName[] = ['barrier-applied', 'versions-equal', 'idempotency-carried']

/** The ownership actions of each intent, in their order. */
const ACTIONS = { transfer: ['drain', 'fence', 'activate'], failover: ['isolate', 'activate'], rejoin: REJOIN_ORDER } as const

const RULES = {
  'ids-unique': ({ steps }) =>
    steps.flatMap((step, i) =>
      steps.findIndex(other => other.id === step.id) === i
        ? []
        : [finding(i, 'id', `the id "${step.id}" is taken by an earlier step`, 'give each step its own id')],
    ),
  'step-does-something': ({ steps }) =>
    steps.flatMap((step, i) =>
      step.action !== null || step.gate.length > 0 || step.watch.length > 0 || step.confirm !== null
        ? []
        : [finding(i, 'id', `step "${step.id}" does nothing`, 'give it an action, a gate, a watch or a confirm')],
    ),
  'ownership-actions-once': ({ intent, steps }) =>
    ACTIONS[intent].flatMap(kind => {
      const found = steps.flatMap((step, i) => (step.action?.kind === kind ? [i] : []))
      if (found.length === 0) return [{ path: ['steps'], message: `no step does ${kind}`, hint: `add a step with action: ${kind}` }]
      return found
        .slice(1)
        .map(i => finding(i, 'action', `${kind} stands here a second time`, `each of ${ACTIONS[intent].join(', ')} runs exactly once`))
    }),
  'ownership-actions-in-order': ({ intent }, at) => [
    ...(intent !== 'rejoin' && at.drain > at.fence && at.fence >= 0
      ? [finding(at.fence, 'action', 'the fence comes before the drain', 'drain, then fence')]
      : []),
    ...(at.fence > at.activate && at.activate >= 0
      ? [finding(at.activate, 'action', 'activation comes before the fence', 'fence, then activate')]
      : []),
    ...(at.fence < 0 && at.drain > at.activate && at.activate >= 0
      ? [finding(at.activate, 'action', 'activation comes before the drain', 'drain, fence, then activate')]
      : []),
    ...(at.isolate > at.activate && at.activate >= 0
      ? [finding(at.activate, 'action', 'activation comes before isolate', 'isolate, then activate')]
      : []),
  ],
  'preflight-before-drain': ({ intent, steps }, at) =>
    intent !== 'transfer' || at.drain < 0
      ? []
      : absent(PREFLIGHT, steps.slice(0, at.drain)).map(check =>
          finding(at.drain, 'action', `the drain is reached without ${check}`, `add ${check} to the gate of an earlier step`),
        ),
  'fence-proved-before-activation': ({ intent, steps }, at) =>
    intent !== 'transfer' || at.activate < 0 || (at.fence >= 0 && passed('fence-holds', steps.slice(at.fence, at.activate)))
      ? []
      : [
          finding(
            at.activate,
            'action',
            'activation is reached without fence-holds',
            'add fence-holds to the gate of the fence step, or of a step between fence and activate',
          ),
        ],
  'caught-up-before-activation': ({ intent, steps }, at) =>
    intent !== 'transfer' || at.activate < 0
      ? []
      : absent(CATCH_UP, at.fence < 0 ? [] : steps.slice(at.fence + 1, at.activate)).map(check =>
          finding(
            at.activate,
            'action',
            `activation is reached without ${check}`,
            `add ${check} to the gate of a step after the fence and before activate`,
          ),
        ),
  // Sooner it would hold back the barrier on its way, and stop keys that are still served.
  'region-fence-after-catch-up': ({ intent, steps }, at) =>
    steps.flatMap((step, i) =>
      intent !== 'transfer' ||
      step.action?.kind !== 'fence-region' ||
      (at.fence >= 0 && passed('barrier-applied', steps.slice(at.fence + 1, i)))
        ? []
        : [
            finding(
              i,
              'action',
              'a fence of the whole region before the target has caught up',
              'move it behind the step whose gate has barrier-applied',
            ),
          ],
    ),
  'no-human-while-writes-stop': ({ intent, steps }, at) =>
    steps.flatMap((step, i) => {
      // Nobody's writes wait for a region in exile.
      if (intent === 'rejoin') return []
      const first = at.drain >= 0 ? 'drain' : 'isolate'
      const named = first === 'drain' ? 'the drain' : first
      const hint = `move it before ${named}: the key takes no writes while somebody thinks`
      const stopped = at[first] >= 0 && i >= at[first]
      const pause = step.action?.kind === 'pause' && stopped && i < stop(at)
      return [
        ...(step.confirm !== null && stopped ? [finding(i, 'confirm', `a confirmation after ${named}`, hint)] : []),
        ...(pause ? [finding(i, 'action', `a pause between ${first} and activation`, hint)] : []),
        ...(step.watch.length > 0 && stopped && i < stop(at)
          ? [finding(i, 'watch', `a watch between ${first} and activation`, 'watch after the activation; before it, use a gate')]
          : []),
      ]
    }),
  'no-sql-at-the-fenced-source': ({ intent, steps }, at) =>
    steps.flatMap((step, i) => {
      if (intent === 'rejoin' || step.action?.kind !== 'sql' || step.action.region !== 'source' || i >= stop(at)) return []
      if (intent === 'failover') return [finding(i, 'action', 'sql at a source that is dark', 'it cannot answer; do it after rejoin')]
      const hint = 'the position the target must reach would move; do it before the fence'
      return at.fence >= 0 && i > at.fence ? [finding(i, 'action', 'sql at the source between fence and activation', hint)] : []
    }),
  'check-can-pass': ({ steps }, at) =>
    steps.flatMap((step, i) =>
      (['gate', 'watch'] as const).flatMap(list =>
        step[list].flatMap((use, j) => {
          const after = AFTER[use.check]
          if (after === undefined || at[after] < 0 || i >= at[after]) return []
          return [
            {
              path: ['steps', i, list, j],
              message: `${use.check} cannot pass before ${after}`,
              hint: `move it to the step of ${after}, or after it`,
            },
          ]
        }),
      ),
    ),
  'check-once-in-a-list': ({ steps }) =>
    steps.flatMap((step, i) =>
      (['gate', 'watch'] as const).flatMap(list =>
        step[list].flatMap((use, j) =>
          step[list].findIndex(other => other.check === use.check) === j
            ? []
            : [{ path: ['steps', i, list, j], message: `${use.check} stands in this ${list} twice`, hint: 'keep one of the two' }],
        ),
      ),
    ),
  'watch-has-its-time': ({ steps }) =>
    steps.flatMap((step, i) => {
      if (step.watch.length > 0 && step.forMs === 0) return [finding(i, 'watch', 'a watch without for', 'say how long it goes on: for: 5m')]
      return step.watch.length === 0 && step.forMs > 0
        ? [finding(i, 'for', 'for without a watch', 'add a watch, or use within for a gate')]
        : []
    }),
  'limits-are-sane': ({ steps }) =>
    steps.flatMap((step, i) => [
      ...(step.withinMs > 0 && step.withinMs <= WITHIN_LIMIT_MS
        ? []
        : [finding(i, 'within', 'within must be more than 0 and at most 1h', 'within: 30s')]),
      ...(step.forMs <= FOR_LIMIT_MS ? [] : [finding(i, 'for', 'for must be at most 24h', 'for: 5m')]),
      ...actionLimits(step, i),
    ]),
  'sql-parameters-match': ({ steps }) =>
    steps.flatMap((step, i) => {
      if (step.action?.kind !== 'sql') return []
      const used = highestParameter(step.action.statement)
      const given = step.action.parameters.length
      return used === given
        ? []
        : [
            finding(
              i,
              'action',
              `the statement uses ${used} parameters, ${given} are given`,
              'name one for each of $1, $2, … under parameters',
            ),
          ]
    }),
  ...FAILOVER_RULES,
  ...REJOIN_RULES,
} satisfies Record<string, Rule>

export type LintRule = keyof typeof RULES

/** Earliest ownership action before which a check can only fail. */
const AFTER: Partial<Record<CheckName, keyof Places>> = {
  'fence-holds': 'fence',
  'barrier-applied': 'fence',
  'target-accepts-write': 'activate',
  'lease-over': 'isolate',
  'external-fence-holds': 'isolate',
  'source-attested': 'isolate',
}

/**
 * Why the runbook is refused; empty means that its activation cannot be reached without the evidence of fence and catch-up (of
 * a failover: of the fence from outside, and of a loss that somebody owned; of a rejoin: that the region is closed before all and opened after all).
 * Pure. The engine asks again before a run, and the control plane's constraints a third time at the activation.
 */
export function lintRunbook(runbook: Runbook): readonly LintProblem[] {
  const place = (kind: ActionKind) => runbook.steps.findIndex(step => step.action?.kind === kind)
  const at = { drain: place('drain'), fence: place('fence'), isolate: place('isolate'), activate: place('activate') }
  return (Object.entries(RULES) as [LintRule, Rule][]).flatMap(([rule, check]) => check(runbook, at).map(found => ({ rule, ...found })))
}

export const LINT_RULES = Object.keys(RULES) as readonly LintRule[]

/** Where the write stop ends; a runbook that never activates never ends it. */
function stop(at: Places): number {
  return at.activate < 0 ? Number.POSITIVE_INFINITY : at.activate
}

function actionLimits({ action }: Step, i: number): readonly Finding[] {
  if (action === null) return []
  const ms = 'timeoutMs' in action ? action.timeoutMs : action.kind === 'pause' ? action.forMs : null
  if (ms === null || (ms > 0 && ms <= WITHIN_LIMIT_MS)) return []
  return [finding(i, 'action', `${action.kind} must take more than 0 and at most 1h`, 'for example 30s')]
}

/** Highest $n outside quotes and comments. */
function highestParameter(statement: string): number {
  const bare = statement.replace(/'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\//g, ' ')
  return Math.max(0, ...[...bare.matchAll(/\$(\d{1,5})/g)].map(m => Number(m[1])))
}
