import { formatMs } from '../domain/duration.ts'
import { type Attempt, isOpen, OPEN_STATES, type Run } from '../domain/journal.ts'
import { showKey } from '../domain/key.ts'
import type { CliContext } from './context.ts'
import { printable } from './render/error.ts'
import { approvalLines } from './render/failover.ts'
import { evidenceLine } from './render/progress.ts'
import { withoutText } from './render/status.ts'
import { renderTable } from './render/table.ts'
import { fitted } from './render/wrapped.ts'
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
  else context.out.line(renderTable(['run', 'state', 'runbook', 'keys', 'to', 'started', 'by', 'lease'], runs.map(runRow)))
}

export async function showRun(context: CliContext, runId: string): Promise<void> {
  const format = context.format('json')
  const { controlPlane } = await context.connect()
  const [run, attempts, evidence, approvals] = await Promise.all([
    controlPlane.run(runId),
    controlPlane.attempts(runId),
    controlPlane.evidence(runId),
    controlPlane.approvals(runId),
  ])
  if (run === null) throw unknownRun(runId)
  if (format === 'json') {
    context.out.line(JSON.stringify({ run, attempts, evidence, approvals }))
    return
  }
  const lines = [
    renderTable(['run', 'state', 'runbook', 'keys', 'to', 'started', 'by', 'lease'], [runRow(run)]),
    `runbook sha256 ${run.runbookSha256}, plan ${run.planId}${run.reason === null ? '' : `, reason: ${JSON.stringify(run.reason)}`}`,
    '',
    renderTable(
      ['key', 'from', 'to', 'epoch', 'outcome'],
      run.moves.map(m => [showKey(m.key), m.source, m.target, String(m.epoch), m.outcome ?? 'open']),
    ),
    ...(approvals.length === 0 ? [] : ['', ...approvalLines(approvals).map(line => fitted(context.out, printable(line.trim()), 2))]),
    '',
    renderTable(['attempt', 'key', 'step', 'action', 'started', 'outcome'], attempts.map(attemptRow)),
    '',
    ...evidence.map(e => `${e.asOf} ${e.step}${e.key === null ? '' : ` ${showKey(e.key)}`}\n${evidenceLine(context.out, e)}`),
  ]
  context.out.line(lines.join('\n'))
}

function runRow(run: Run): readonly string[] {
  const first = run.moves[0]
  const keys = run.moves.length === 1 && first !== undefined ? showKey(first.key) : String(run.moves.length)
  const open = isOpen(run)
  const lease = open ? (run.leaseAlive ? `${formatMs(run.leaseLeftMs)} left` : 'over') : '-'
  return [run.id, run.state, run.runbookName, keys, first?.target ?? '-', run.startedAt, run.startedBy, lease]
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
