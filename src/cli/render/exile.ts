import type { Approval } from '../../domain/approval.ts'
import type { Exile, ForcedFailover, ReconcileCount } from '../../domain/failover.ts'
import { showBound } from '../../domain/loss.ts'
import { onOneLine } from './error.ts'
import { approvalLines } from './failover.ts'
import { counted } from './words.ts'

/** One exile, the failovers that led to it, who spoke for or against them, and what the way back needs now. */
export type ForcedStatus = {
  readonly exile: Exile
  readonly failovers: readonly ForcedFailover[]
  readonly approvals: readonly Approval[]
  /** What is on the list of each of its runs, oldest first. */
  readonly lists: readonly ReconcileCount[]
  /** An agent reaches the region's database; null: none looks. */
  readonly answers: boolean | null
}

/** Forced failovers whose source is not back, for status: what is owed first, then on what each stood, and who agreed. */
export function exileLines(forced: ForcedStatus): readonly string[] {
  const { exile, failovers, approvals } = forced
  return [
    ...exileSummary(forced),
    `  next: ${exileNext(forced)}`,
    ...failovers.flatMap(f =>
      forcedLines(
        f,
        approvals.filter(a => a.runId === f.runId),
      ),
    ),
    `  in exile since ${exile.since}`,
  ]
}

/** What was handed over, what that was estimated to lose, who owned it, and on what it stood. */
export function forcedLines(forced: ForcedFailover, approvals: readonly Approval[]): readonly string[] {
  const { runId, source, target, keys, at, by, fence, fenceObserved } = forced
  const { kind, boundMs, by: owner } = forced.acknowledgement
  return [
    `  run ${runId} forced ${counted(keys.length, 'key')} ${source} -> ${target} at ${at} by ${by}`,
    `    lost, as estimated then: ${estimateText(forced)}`,
    `    acknowledged ${boundMs === 'any' ? 'any loss' : `up to ${showBound(boundMs)}`} (${kind}) by ${owner}`,
    `    fence ${fence}, as seen then: ${onOneLine(fenceObserved)}`,
    ...approvalLines(approvals),
  ]
}

/** What has to survive every cut. */
function exileSummary(forced: ForcedStatus): readonly string[] {
  const { exile, failovers } = forced
  const keys = new Set(failovers.flatMap(f => f.keys.map(k => k.key))).size
  const targets = [...new Set(failovers.map(f => f.target))].join(', ')
  return [`EXILE ${exile.region}: ${counted(keys, 'key')} went ${exile.region} -> ${targets}`, `  ${comparedText(forced)}`]
}

/** Zero undecided says something only where somebody has compared. */
function comparedText({ exile: { region, done, undecided }, lists }: ForcedStatus): string {
  const found = lists.reduce((sum, list) => sum + list.found, 0)
  if (!done.includes('listed')) {
    const before = found === 0 ? '' : `; found before: ${counted(found, 'write')}, ${undecided} undecided`
    return `${done.includes('fenced') ? 'fenced, ' : ''}not compared yet: how much only ${region} has is not known${before}`
  }
  const what = found === 0 ? 'nothing that only one side has' : `${counted(found, 'write')} that only one side has`
  if (undecided > 0) return `compared: ${what}, ${undecided} undecided`
  return `compared: ${what}${found === 0 ? '' : ', all decided'}; ${done.includes('level') ? 'level, and not open yet' : 'not level yet'}`
}

function exileNext({ exile, lists, answers }: ForcedStatus): string {
  const open = lists.find(list => list.undecided > 0)
  if (exile.done.includes('listed') && open !== undefined) return `homeregion reconcile ${open.runId} --undecided`
  return `homeregion rejoin ${exile.region} --reason TEXT${answers === true ? '' : '   (when it is back)'}`
}

/** Of each key the same unseen writes: the largest is the whole. */
function estimateText({ keys }: ForcedFailover): string {
  if (keys.length === 0 || keys.some(k => k.unknown.ms === null)) return 'nobody could say how much'
  const ms = keys.reduce((most, k) => Math.max(most, k.unknown.ms ?? 0), 0)
  const writes = keys.some(k => k.unknown.writes === null) ? null : keys.reduce((most, k) => Math.max(most, k.unknown.writes ?? 0), 0)
  const recoverable = keys.reduce((sum, k) => sum + k.recoverable, 0)
  return `up to ${showBound(ms)}, ${writes === null ? 'an unknown number of writes' : `at most ${counted(writes, 'write')}`}${recoverable === 0 ? '' : `; ${recoverable} more stood in its Kafka`}`
}
