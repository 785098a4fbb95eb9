import { formatMs } from '../../domain/duration.ts'
import { showBound } from '../../domain/loss.ts'
import type { Rehearsal, RehearsedLoss } from '../../domain/rehearsal.ts'

export function rehearsalText(r: Rehearsal): string {
  return [
    `drill ${r.outcome}: forced failover in a sandbox, ${formatMs(r.tookMs)}`,
    `keys       ${r.keys} canary keys ${r.source} -> ${r.target} and back`,
    ...recoveredLines(r),
    ...(r.loss === null ? [] : lossLines(r.loss)),
    `consumers  ${r.gaps ?? 'unknown'} gaps, ${r.duplicates ?? 'unknown'} duplicates, ${r.overlaps ?? 'unknown'} times with two writers`,
    ...(r.returnMs === null ? [] : [`returned   to ${r.source} by a planned move, ${formatMs(r.returnMs)}`]),
    ...r.why.map(why => `why        ${why}`),
    'not on record: it shows that the way works, not how long your regions take',
  ].join('\n')
}

function recoveredLines({ recoveryMs, sinceAcknowledgedMs, objectiveMs, source, target }: Rehearsal): readonly string[] {
  const objective = `(objective ${formatMs(objectiveMs)})`
  if (recoveryMs === null) return [`recovered  not every key was written at ${target} ${objective}`]
  return [
    `recovered  ${formatMs(recoveryMs)} after ${source} was dark ${objective}`,
    ...(sinceAcknowledgedMs === null ? [] : [`           ${formatMs(sinceAcknowledgedMs)} after the loss was acknowledged`]),
  ]
}

function lossLines({ bound, found, oldestMs }: RehearsedLoss): readonly string[] {
  const most = bound.writes === null ? '' : `at most ${bound.writes} writes of `
  const owned = bound.ms === 'any' ? 'any' : `${most}the last ${showBound(bound.ms)}`
  const oldest = oldestMs === 0 ? '' : `, the oldest ${formatMs(oldestMs)} before the end`
  return [`loss       acknowledged: ${owned}`, `           found: ${found} writes${oldest}; dropped`]
}
