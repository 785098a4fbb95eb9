import type { CheckName } from './checks.ts'
import { type Finding, finding, type Rule } from './lint-finding.ts'
import { type ActionKind, REJOIN_ACTIONS, type Runbook, type Step } from './runbook.ts'

/**
 * The fixed steps of a rejoin, in the only order in which none of them undoes what another has to keep: closed before anything else is asked, opened
 * when what only it has was decided about and replaced, and let in at last.
 */
export const REJOIN_ORDER = ['fence', ...REJOIN_ACTIONS] as const satisfies readonly ActionKind[]
export type RejoinKind = (typeof REJOIN_ORDER)[number]

/** What an author may put between them. */
const AUTHORED: readonly ActionKind[] = ['exec', 'notify', 'http', 'pause']
/** Checks that ask the two regions, not a key's move between them. */
export const REJOIN_CHECKS = ['regions-reachable', 'boundary-installed'] as const satisfies readonly CheckName[]

/** Why the earlier of two steps has to come first, as the step after it is named. */
const BECAUSE: Readonly<Record<RejoinKind, string>> = {
  fence: 'the region may be writing: it is fenced before anything else is done',
  follow: 'the fence keeps the region closed while its keys are told whom they belong to',
  list: 'what only the region has is listed when no key of it is open any more',
  decide: 'what was found is decided about when it is listed',
  level: 'rows are replaced when each write that only they hold was decided about',
  lift: 'the region is opened when it is level: before it, what is written there or read from it is not the truth',
  end: 'the exile ends when the region stands open, level and without a fence of its own',
}

export function isRejoinKind(kind: ActionKind | undefined): kind is RejoinKind {
  return REJOIN_ORDER.some(known => known === kind)
}

export const REJOIN_RULES = {
  'rejoin-in-order': ({ intent, steps }) => {
    if (intent !== 'rejoin') return []
    const fixed = steps.flatMap((step, i) => (isRejoinKind(step.action?.kind) ? [{ kind: step.action.kind, i }] : []))
    const places = fixed.map(({ kind }) => REJOIN_ORDER.indexOf(kind))
    const early = fixed.filter((_, n) => places.slice(n + 1).some(later => later < (places[n] ?? 0)))
    return [...early.map(({ kind, i }) => tooEarly(kind, i, steps)), ...outside(steps)]
  },
  'rejoin-by-itself': ({ intent, steps }) =>
    steps.flatMap((step, i) => (intent === 'rejoin' ? [...foreignAction(step, i), ...unanswered(step, i)] : strayed(step, i, intent))),
} satisfies Record<string, Rule>

function tooEarly(kind: RejoinKind, i: number, steps: readonly Step[]): Finding {
  const before = REJOIN_ORDER.slice(0, REJOIN_ORDER.indexOf(kind)).filter(other => steps.slice(i + 1).some(s => s.action?.kind === other))
  return finding(i, 'action', `${kind} comes before ${before.join(', ')}`, `${BECAUSE[kind]}; the order is ${REJOIN_ORDER.join(', ')}`)
}

/** Nothing before the fence, and nothing after the end: the same command could not go on there, since there is no exile any more. */
function outside(steps: readonly Step[]): readonly Finding[] {
  const [first, last] = [steps.findIndex(s => s.action?.kind === 'fence'), steps.findLastIndex(s => s.action?.kind === 'end')]
  return steps.flatMap((step, i) => {
    if (isRejoinKind(step.action?.kind)) return []
    if (i < first) return [finding(i, 'id', `step "${step.id}" comes before the fence`, BECAUSE.fence)]
    if (last >= 0 && i > last)
      return [
        finding(
          i,
          'id',
          `step "${step.id}" comes after the end of the exile`,
          'put it before end: an exile that is over is not gone on with',
        ),
      ]
    return []
  })
}

function foreignAction({ action }: Step, i: number): readonly Finding[] {
  if (action === null || isRejoinKind(action.kind) || AUTHORED.includes(action.kind)) return []
  return [
    finding(
      i,
      'action',
      `${action.kind} in a runbook of intent rejoin`,
      `it moves no key; between its own steps it may have ${AUTHORED.join(', ')}`,
    ),
  ]
}

function unanswered(step: Step, i: number): readonly Finding[] {
  return [
    ...(step.confirm === 'type-key'
      ? [finding(i, 'confirm', 'a key to type where no key moves', 'confirm: plain; the command itself asks for the name of the region')]
      : []),
    ...(step.confirm !== null && step.action?.kind === 'fence'
      ? [finding(i, 'confirm', 'a confirmation before the fence', `${BECAUSE.fence}; the command itself has asked`)]
      : []),
    ...(['gate', 'watch'] as const).flatMap(list =>
      step[list].length > 0 && step.action?.kind === 'end'
        ? [finding(i, list, `a ${list} behind the end of the exile`, 'give it a step of its own before lift')]
        : [],
    ),
    ...(['gate', 'watch'] as const).flatMap(list =>
      step[list].flatMap((use, j) =>
        REJOIN_CHECKS.some(check => check === use.check)
          ? []
          : [
              {
                path: ['steps', i, list, j],
                message: `${use.check} asks about a move, and a rejoin moves nothing`,
                hint: `${REJOIN_CHECKS.join(', ')}, or a command of your own: exec`,
              },
            ],
      ),
    ),
  ]
}

function strayed({ action }: Step, i: number, intent: Runbook['intent']): readonly Finding[] {
  if (!REJOIN_ACTIONS.some(kind => kind === action?.kind)) return []
  return [
    finding(
      i,
      'action',
      `${action?.kind ?? ''} in a runbook of intent ${intent}`,
      'it brings a region back; write another runbook, intent: rejoin',
    ),
  ]
}
