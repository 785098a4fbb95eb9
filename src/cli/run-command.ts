import { type Command, InvalidArgumentError, Option } from 'commander'
import { HomeregionError } from '../domain/errors.ts'
import { EXIT, type ExitName } from '../domain/exit-codes.ts'
import { showKey } from '../domain/key.ts'
import type { Operator } from '../engine/context.ts'
import type { RunEnd } from '../engine/run-end.ts'
import type { CliContext } from './context.ts'
import { type Answers, createOperator, watchSignals } from './operator.ts'
import type { PlanFlags } from './plan-request.ts'
import { printable } from './render/error.ts'
import { createProgress, noLiveLine } from './render/progress.ts'
import { fittedLines } from './render/wrapped.ts'

/** Flags of every verb that drives a run. */
export type DriveFlags = {
  readonly yes?: boolean
  readonly confirm?: string
  readonly confirmCount?: number
  readonly observe?: number
  readonly reason?: string
}

export type ResumeFlags = DriveFlags & { readonly takeOver?: boolean; readonly rpoAck?: string | true; readonly attest?: string }

export type TransferFlags = PlanFlags & DriveFlags & { readonly plan?: string; readonly dryRun?: boolean }

export function driveOptions(command: Command): Command {
  return command
    .option('-y, --yes', 'answer plain confirmations (never a typed one)')
    .option('--confirm <key>', 'the typed confirmation, given in advance')
    .addOption(new Option('--confirm-count <n>', 'the typed confirmation of several keys: their number').argParser(wholeNumber))
    .addOption(
      new Option('--observe <duration>', "watch this long after activation instead of the runbook's own time (0s: not at all)").argParser(
        duration,
      ),
    )
    .option('--reason <text>', 'recorded with the run')
}

export function answersOf(flags: DriveFlags): Answers {
  return { yes: flags.yes === true, confirm: flags.confirm ?? null, confirmCount: flags.confirmCount ?? null }
}

/** Runs `work` with an operator, progress on stderr and signals watched; prints how it ended and sets the exit code. */
export async function drive(context: CliContext, answers: Answers, work: (operator: Operator) => Promise<RunEnd>): Promise<void> {
  await driven(context, answers, work, { text: endText, json: endJson })
}

/** The same for anything that ends with an exit and says how. */
export async function driven<T extends { readonly exit: ExitName }>(
  context: CliContext,
  answers: Answers,
  work: (operator: Operator) => Promise<T>,
  show: { readonly text: (end: T) => string; readonly json: (end: T) => string },
): Promise<void> {
  const format = context.format('json')
  const live = context.err.isTerminal ? (await import('./live-line.ts')).createLiveLine(process.stderr) : noLiveLine
  const progress = createProgress(context.err, live)
  const signals = watchSignals(context, () => live.clear())
  try {
    const end = await work(createOperator(context, answers, progress.report, signals, progress.close))
    progress.close()
    if (format === 'json') context.out.line(show.json(end))
    else context.out.line(fittedLines(context.out, printable(show.text(end))))
    context.exit(end.exit === 'interrupted' && signals.name() !== 'SIGINT' ? 'terminated' : end.exit)
  } finally {
    progress.close()
    signals.stop()
  }
}

/** The facts, the state of the data and the next command, key by key; the worst first. */
function endText(end: RunEnd): string {
  const bad = end.keys.filter(k => k.end.exit !== 'done')
  const moved = end.keys.filter(k => k.end.exit === 'done')
  const lines = bad.flatMap(({ move, end: e }) => [
    `${showKey(move.key)}: ${e.fact}`,
    `state: ${e.state}`,
    ...(e.next === null ? [] : [`next:  ${e.next}`]),
  ])
  const done = moved.map(({ end: e }) => e.state)
  const shown = done.slice(0, 10)
  return [
    ...lines,
    ...shown,
    ...(done.length > shown.length ? [`+${done.length - shown.length} more moved`] : []),
    `run ${end.runId}: ${end.state}`,
  ].join('\n')
}

function endJson(end: RunEnd): string {
  return JSON.stringify({
    run: end.runId,
    state: end.state,
    exit: EXIT[end.exit].code,
    keys: end.keys.map(({ move, end: e }) => ({
      key: move.key,
      source: move.source,
      target: move.target,
      outcome: e.outcome,
      fact: e.fact,
      state: e.state,
      next: e.next,
    })),
  })
}

export function wholeNumber(text: string): number {
  const value = Number(text)
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) throw new InvalidArgumentError(`${JSON.stringify(text)} is not a whole number`)
  return value
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

export function duration(text: string): number {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text) ?? []
  if (digits === undefined || unit === undefined)
    throw new InvalidArgumentError(`${JSON.stringify(text)} is not a duration such as 500ms, 30s or 5m`)
  return Number(digits) * (UNITS[unit] ?? 1)
}

export function unknownRun(runId: string): HomeregionError {
  return new HomeregionError('unknown-run', {
    fact: `the control plane has no run ${showKey(runId)}`,
    state: 'Nothing was changed.',
    next: 'homeregion run list',
  })
}
