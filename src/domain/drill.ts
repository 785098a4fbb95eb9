import type { Run } from './journal.ts'

/**
 * How the reason of a drill's run begins, and of no other: what has the mark gives its keys up when somebody else wants them. The reason is recorded
 * with the run's opening, so there is no moment at which the run has keys and no mark.
 */
export const DRILL_MARK = 'drill: '

export function isDrillRun({ intent, reason }: Pick<Run, 'intent' | 'reason'>): boolean {
  return intent === 'transfer' && reason?.startsWith(DRILL_MARK) === true
}
