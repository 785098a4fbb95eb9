import { FORCED_CHECKS, OUTSIDE_FENCES } from './checks.ts'
import { absent, finding, passed, type Rule } from './lint-finding.ts'

/** What belongs to one intent only, and what a runbook that may lose writes has to prove instead of catch-up. */

const TRANSFER_ACTIONS = ['drain', 'fence', 'fence-region']
const PROOFS = ['source-dark', 'no-region-ahead', 'loss-acknowledged', 'approved', 'target-can-write'] as const

export const FAILOVER_RULES = {
  'one-intent': ({ intent, steps }) =>
    steps.flatMap((step, i) => {
      if (intent === 'rejoin') return []
      if (intent === 'failover')
        return step.action !== null && TRANSFER_ACTIONS.includes(step.action.kind)
          ? [
              finding(
                i,
                'action',
                'a planned move’s step in a runbook of intent failover',
                'a dark source cannot be asked: use isolate; for a planned move write another runbook, intent: transfer',
              ),
            ]
          : []
      const hint = 'intent transfer never loses a committed write; write another runbook, intent: failover'
      return [
        ...(step.action?.kind === 'isolate' ? [finding(i, 'action', 'isolate in a runbook of intent transfer', hint)] : []),
        ...(['gate', 'watch'] as const).flatMap(list =>
          step[list].flatMap((use, j) =>
            FORCED_CHECKS.some(check => check === use.check)
              ? [{ path: ['steps', i, list, j], message: `${use.check} in a runbook of intent transfer`, hint }]
              : [],
          ),
        ),
      ]
    }),
  'loss-owned-before-activation': ({ intent, steps }, at) => {
    if (intent !== 'failover' || at.activate < 0) return []
    const before = steps.slice(0, at.activate)
    return absent(PROOFS, before).map(check =>
      finding(at.activate, 'action', `activation is reached without ${check}`, `add ${check} to the gate of an earlier step`),
    )
  },
  'fenced-from-outside-before-activation': ({ intent, steps }, at) => {
    if (intent !== 'failover' || at.activate < 0 || at.isolate < 0) return []
    // Before isolate nobody has stopped granting, applied a fence or given their word.
    return OUTSIDE_FENCES.some(check => passed(check, steps.slice(at.isolate, at.activate)))
      ? []
      : [
          finding(
            at.activate,
            'action',
            `activation is reached without a fence from outside`,
            `add one of ${OUTSIDE_FENCES.join(', ')} to the gate of the isolate step, or of one between isolate and activate`,
          ),
        ]
  },
} satisfies Record<string, Rule>
