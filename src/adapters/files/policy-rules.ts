import { parseDuration, showDuration } from '../../domain/duration.ts'
import { keyPattern } from '../../domain/key-pattern.ts'
import type { ConfigFile } from './config-schema.ts'
import { problemAt, type SchemaProblem } from './schema-problems.ts'

const SECOND = 1_000
const HOUR = 3_600 * SECOND

type Limits = { readonly least: number; readonly most: number }

/** Outside these a duration is a slip of a unit, or switches off what it should bound. */
const LIMITS = {
  evidenceMaxAge: { least: 1, most: HOUR },
  // A call that takes longer than a minute is no help to anyone who waits for it.
  callTimeout: { least: 1, most: 60 * SECOND },
  runLease: { least: 1, most: HOUR },
  // Time to read the plan and to type; a day-old token owns a loss that nobody remembers.
  ackToken: { least: 10 * SECOND, most: 24 * HOUR },
  coolDown: { least: SECOND, most: 720 * HOUR },
} as const satisfies Record<string, Limits>

/** Rules between the values of the policy, which a schema cannot say. */
export function policyProblems(file: ConfigFile): SchemaProblem[] {
  const { policy, agent } = file
  return [
    ...(Object.keys(LIMITS) as (keyof typeof LIMITS)[]).flatMap(name => within(['policy', name], policy[name], LIMITS[name])),
    ...within(['agent', 'observeEvery'], agent.observeEvery, { least: 100, most: 60 * SECOND }),
    ...(policy.automatic === undefined
      ? []
      : within(['policy', 'automatic', 'coolDown'], policy.automatic.coolDown, { least: 60 * SECOND, most: 720 * HOUR })),
    // One look that is late, or on its way, is no darkness.
    ...within(
      ['policy', 'darkAfter'],
      policy.darkAfter,
      { least: Math.max(SECOND, 2 * ms(agent.observeEvery)), most: HOUR },
      'twice agent.observeEvery, and 1s',
    ),
    // A run that waits for one call longer than its lease lives would find itself superseded by its own slowness.
    ...(ms(policy.runLease) > ms(policy.callTimeout) ? [] : [problemAt(['policy', 'runLease'], 'must be longer than policy.callTimeout')]),
    ...approvalProblems(policy.approvals),
    ...lossProblems(policy.loss),
  ]
}

function ms(duration: string): number {
  return parseDuration(duration) ?? 0
}

function within(path: readonly string[], duration: string, { least, most }: Limits, why: string | null = null): SchemaProblem[] {
  if (ms(duration) < least)
    return [problemAt(path, least === 1 ? 'must be more than 0' : `${duration} is too short: at least ${showDuration(least)}`, why)]
  return ms(duration) > most ? [problemAt(path, `must be at most ${showDuration(most)}`)] : []
}

/** A person counts once; and where several are asked for, there have to be as many. */
function approvalProblems({ approvers, needed }: ConfigFile['policy']['approvals']): SchemaProblem[] {
  const path = ['policy', 'approvals']
  const twice = approvers.flatMap((name, i) =>
    approvers.indexOf(name) < i ? [problemAt([...path, 'approvers', i], `${JSON.stringify(name)} is listed twice`)] : [],
  )
  const many = new Set(approvers).size
  // One from nobody is the default: where nobody is listed, only broken glass will do.
  if (needed <= many || (many === 0 && needed === 1)) return twice
  return [...twice, problemAt([...path, 'needed'], `asks for ${needed} approvals, ${many === 0 ? 'nobody' : many} may give one`)]
}

/** A pattern that matches another's text matches all that the other does: its literal parts hold no `*`, so a `*` is met by a `*` alone. */
function lossProblems(loss: ConfigFile['policy']['loss']): SchemaProblem[] {
  return loss.flatMap(({ keys }, i) => {
    const first = loss.slice(0, i).findIndex(earlier => keyPattern(earlier.keys, keys))
    if (first < 0) return []
    const said = problemAt(
      ['policy', 'loss', i],
      `never reached: policy.loss[${first}] \`${loss[first]?.keys ?? ''}\` comes first`,
      'the first match counts: put the narrower pattern first',
    )
    return [{ ...said, other: ['policy', 'loss', first] }]
  })
}
