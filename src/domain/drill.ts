import type { Holder, Run } from './journal.ts'

/**
 * How the reason of a drill's run begins, and of no other: what has the mark gives its keys up when somebody else wants them. The reason is recorded
 * with the run's opening, so there is no moment at which the run has keys and no mark.
 */
export const DRILL_MARK = 'drill: '

export function isDrillRun({ intent, reason }: Pick<Run, 'intent' | 'reason'>): boolean {
  return intent === 'transfer' && reason?.startsWith(DRILL_MARK) === true
}

/** A drill that brings its keys back, as it was begun. */
export type BegunDrill = {
  /** uuid, the same as of its result. */
  readonly id: string
  readonly home: string
  readonly target: string
  readonly keys: readonly string[]
  readonly holder: Holder
}

export type UnfinishedDrill = BegunDrill & {
  /** Keys whose newest change of home was made by a drill's run since then. */
  readonly away: readonly string[]
  /** The drill's run that has keys of it now; null: it died, or is, between its two moves. */
  readonly openRun: string | null
  readonly at: string
  readonly by: string
}
