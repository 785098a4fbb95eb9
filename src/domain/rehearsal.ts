import { formatMs } from './duration.ts'
import { showBound } from './loss.ts'

/** What a forced failover in a sandbox was seen to do, by the users' own record. Times are of one clock: the rehearsing host's. */
export type RehearsalFacts = {
  readonly source: string
  readonly target: string
  readonly keys: number
  readonly objectiveMs: number
  /** From the moment the source was dark to the last key's first write that its users were told of at the target; null: there was none. */
  readonly recoveryMs: number | null
  /** The part of it that began when the loss was acknowledged. */
  readonly sinceAcknowledgedMs: number | null
  readonly loss: RehearsedLoss | null
  /** Null: not counted. */
  readonly gaps: number | null
  readonly duplicates: number | null
  /** Times at which two regions could write one key. */
  readonly overlaps: number | null
  /** What the way back took, from the command to its end; null: they are not back. */
  readonly returnMs: number | null
  readonly tookMs: number
  /** The step that did not do what it should. */
  readonly failure: string | null
}

export type RehearsedLoss = {
  /** What was acknowledged before it happened, in time and in writes; `writes` null: nobody could say. */
  readonly bound: { readonly ms: number | 'any'; readonly writes: number | null }
  /** Writes that only the source had, as reconcile listed them. */
  readonly found: number
  /** How long before the end the oldest of them was acknowledged to its user. */
  readonly oldestMs: number
}

export type Rehearsal = RehearsalFacts & {
  /** A sandbox shows that the way works, and how; nothing about the time that other machines need. */
  readonly rehearsed: 'forced failover, sandbox'
  readonly outcome: 'passed' | 'missed-objective' | 'failed'
  readonly why: readonly string[]
}

/** Pure. What was not counted fails as surely as what was counted and is wrong. */
export function judgeRehearsal(facts: RehearsalFacts): Rehearsal {
  const why = facts.failure === null ? problems(facts) : [facts.failure]
  const missed = facts.recoveryMs !== null && facts.recoveryMs > facts.objectiveMs
  return {
    rehearsed: 'forced failover, sandbox',
    outcome: why.length > 0 ? 'failed' : missed ? 'missed-objective' : 'passed',
    why,
    ...facts,
  }
}

function problems({ recoveryMs, loss, gaps, duplicates, overlaps, returnMs, source, target }: RehearsalFacts): readonly string[] {
  return [
    ...(recoveryMs === null ? [`no write of every key was admitted at ${target}`] : []),
    ...(loss === null ? ['nobody looked for what was lost'] : lossProblems(loss)),
    ...(gaps === 0 ? [] : [`${gaps ?? 'unknown'} writes are missing that nobody had given up`]),
    ...(duplicates === 0 ? [] : [`${duplicates ?? 'unknown'} writes were made twice`]),
    ...(overlaps === 0 ? [] : [`${overlaps ?? 'unknown'} times two regions could write one key`]),
    ...(returnMs === null ? [`the keys are not back in ${source}`] : []),
  ]
}

function lossProblems({ bound, found, oldestMs }: RehearsedLoss): readonly string[] {
  const tooMany = bound.writes !== null && found > bound.writes
  const tooOld = bound.ms !== 'any' && oldestMs > bound.ms
  return [
    ...(tooMany ? [`${found} writes were lost, and at most ${bound.writes} were acknowledged`] : []),
    ...(tooOld ? [`the oldest lost write was ${formatMs(oldestMs)} old, and ${showBound(Number(bound.ms))} were acknowledged`] : []),
  ]
}
