import { formatMs } from '../../domain/duration.ts'
import { showBound } from '../../domain/loss.ts'
import type { Rehearsal, RehearsedLoss } from '../../domain/rehearsal.ts'

export function rehearsalText(r: Rehearsal): string {
  return [
    `drill ${r.outcome}: forced failover in a sandbox, ${r.keys} canary keys ${r.source} -> ${r.target} and back, ${formatMs(r.tookMs)}`,
    `recovered  ${recoveredText(r)} (objective ${formatMs(r.objectiveMs)})`,
    ...(r.loss === null ? [] : lossLines(r.loss)),
    `consumers  ${r.gaps ?? 'unknown'} gaps, ${r.duplicates ?? 'unknown'} duplicates, ${r.overlaps ?? 'unknown'} times with two writers`,
    ...(r.returnMs === null ? [] : [`returned   to ${r.source} by a planned move, ${formatMs(r.returnMs)}`]),
    ...r.why.map(why => `why        ${why}`),
    'not on record: a sandbox shows that the way works, not how long it takes in your regions',
  ].join('\n')
}

function recoveredText({ recoveryMs, sinceAcknowledgedMs, source, target }: Rehearsal): string {
  if (recoveryMs === null) return `no write of every key was admitted at ${target}`
  const since = sinceAcknowledgedMs === null ? '' : `, ${formatMs(sinceAcknowledgedMs)} after the loss was acknowledged`
  return `${formatMs(recoveryMs)} after ${source} was dark${since}`
}

function lossLines({ bound, found, oldestMs }: RehearsedLoss): readonly string[] {
  const most = bound.writes === null ? '' : `at most ${bound.writes} writes of `
  const owned = bound.ms === 'any' ? 'any' : `${most}the last ${showBound(bound.ms)}`
  const oldest = oldestMs === 0 ? '' : `, the oldest ${formatMs(oldestMs)} before the end`
  return [`loss       acknowledged: ${owned}`, `           found: ${found} writes${oldest}; each was listed by reconcile, and dropped`]
}
