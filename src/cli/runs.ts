import { formatMs } from '../domain/duration.ts'
import { type Attempt, isOpen, OPEN_STATES, type Run } from '../domain/journal.ts'
import { showKey } from '../domain/key.ts'
import type { CliContext } from './context.ts'
import { printable } from './render/error.ts'
import { forcedLines } from './render/exile.ts'
import { approvalLines } from './render/failover.ts'
import { evidenceLine } from './render/progress.ts'
import { withoutText } from './render/status.ts'
import { movesText } from './render/status-lines.ts'
import { fittedTable, renderTable } from './render/table.ts'
import { fittedLines } from './render/wrapped.ts'
import { unknownRun } from './run-command.ts'

export async function listRuns(
  context: CliContext,
  flags: { readonly open?: boolean; readonly key?: string; readonly limit: number },
): Promise<void> {
  const format = context.format('json')
  const { controlPlane } = await context.connect()
  const runs = await controlPlane.runs({
    limit: Number.isInteger(flags.limit) && flags.limit > 0 ? Math.min(flags.limit, 1000) : 20,
    ...(flags.open === true ? { states: OPEN_STATES } : {}),
    ...(flags.key === undefined ? {} : { key: flags.key }),
  })
  if (format === 'json') context.out.line(JSON.stringify(runs.map(withoutText)))
  else if (runs.length === 0) context.out.line('no runs')
  else
    context.out.line(
      fittedTable(context.out, ['run', 'state', 'runbook', 'keys', 'to', 'started', 'by', 'lease'], runs.map(runRow), ['by', 'runbook']),
    )
}

export async function showRun(context: CliContext, runId: string): Promise<void> {
  const format = context.format('json')
  const { controlPlane } = await context.connect()
  const [run, attempts, evidence, approvals, [forced]] = await Promise.all([
    controlPlane.run(runId),
    controlPlane.attempts(runId),
    controlPlane.evidence(runId),
    controlPlane.approvals(runId),
    controlPlane.forcedFailovers({ runId, limit: 1 }),
  ])
  if (run === null) throw unknownRun(runId)
  if (format === 'json') {
    context.out.line(JSON.stringify({ run, attempts, evidence, approvals, forced: forced ?? null }))
    return
  }
  const lines = [
    // What was committed says who spoke for it as well.
    ...[...headLines(run), ...(forced === undefined ? approvalLines(approvals) : forcedLines(forced, approvals))].map(line =>
      fittedLines(context.out, printable(line)),
    ),
    '',
    renderTable(
      ['key', 'from', 'to', 'epoch', 'outcome'],
      run.moves.map(m => [showKey(m.key), m.source, m.target, epochText(m), m.outcome ?? 'open']),
    ),
    '',
    renderTable(['attempt', 'key', 'step', 'action', 'started', 'outcome'], attempts.map(attemptRow)),
    '',
    ...evidence.map(e => `${e.asOf} ${e.step}${e.key === null ? '' : ` ${showKey(e.key)}`}\n${evidenceLine(context.out, e)}`),
  ]
  context.out.line(lines.join('\n'))
}

function headLines(run: Run): readonly string[] {
  const { id, state, runbookName, runbookSha256, startedAt, startedBy, endedAt, planId, reason } = run
  const now = endedAt === null ? `lease ${leaseText(run)}` : `ended ${endedAt}`
  return [
    `run ${id} ${state} ${runbookName}: ${movesText(run)}`,
    `  begun ${startedAt} by ${startedBy}; ${now}`,
    ...(reason === null ? [] : [`  reason: ${JSON.stringify(reason)}`]),
    `  plan ${planId}, runbook sha256 ${runbookSha256}`,
  ]
}

/** The plan knows the epoch that is ended; a key that moved has the next. */
function epochText({ epoch, outcome }: Run['moves'][number]): string {
  return outcome === 'moved' ? `${epoch} -> ${epoch + 1}` : String(epoch)
}

function leaseText(run: Run): string {
  if (!isOpen(run)) return '-'
  return run.leaseAlive ? `${formatMs(run.leaseLeftMs)} left` : 'over'
}

function runRow(run: Run): readonly string[] {
  const first = run.moves[0]
  const keys = run.moves.length === 1 && first !== undefined ? showKey(first.key) : String(run.moves.length)
  return [run.id, run.state, run.runbookName, keys, first?.target ?? '-', run.startedAt, run.startedBy, leaseText(run)]
}

function attemptRow(attempt: Attempt): readonly string[] {
  return [
    attempt.id.slice(0, 8),
    attempt.key === null ? '-' : showKey(attempt.key),
    attempt.step,
    attempt.action,
    attempt.startedAt,
    attempt.outcome ?? 'open',
  ]
}
