import { HomeregionError } from '../domain/errors.ts'
import type { Evidence } from '../domain/evidence.ts'
import { showKey } from '../domain/key.ts'
import type { Plan } from '../domain/plan.ts'
import type { Step } from '../domain/runbook.ts'
import type { Operator, RunEvent } from '../engine/context.ts'
import type { CliContext } from './context.ts'
import { shellWord } from './shell-word.ts'

/** How long a question may stand before silence is taken as "no": the run holds its keys meanwhile. */
const CONFIRM_TIMEOUT_MS = 10 * 60_000
/** At a gate every second is write downtime. */
const DEADLINE_TIMEOUT_MS = 30_000

export type Answers = {
  /** Answers plain confirmations, and nothing else. */
  readonly yes: boolean
  /** The key, typed in advance. */
  readonly confirm: string | null
  /** The number of keys, typed in advance. */
  readonly confirmCount: number | null
}

export type Signals = {
  readonly interrupted: () => boolean
  /** Ends a question that nobody is there to answer any more. None where nobody is asked. */
  readonly leaving?: AbortSignal
  readonly stop: () => void
}

/** Nothing is answered, whatever is asked. */
export const NO_ANSWERS: Answers = { yes: false, confirm: null, confirmCount: null }
/** For what is short, or must come to its end. */
export const UNWATCHED: Signals = { interrupted: () => false, stop: () => undefined }

/** The person at the terminal, or the flags that stand for one. Off a terminal nothing is ever asked. */
export function createOperator(
  context: CliContext,
  answers: Answers,
  report: (event: RunEvent) => void,
  signals: Signals,
  beforeAsking: () => void = () => undefined,
): Operator {
  const terminal = isInteractive(context)
  // A line that is still being drawn would hide the question.
  const asking = <T>(question: () => Promise<T>): Promise<T> => {
    beforeAsking()
    return question()
  }
  return {
    report,
    interrupted: signals.interrupted,
    confirm: async (step, plan) =>
      answered(step, plan, answers) ??
      (terminal && !signals.interrupted() ? await asking(() => ask(context, step, plan, signals.leaving)) : false),
    atDeadline: async (step, evidence) =>
      terminal && !signals.interrupted() ? await asking(() => askAtDeadline(step, evidence, signals.leaving)) : 'abort',
  }
}

/** Both the question (stderr) and the answer (stdin) need a terminal; prompts would take an answer from a pipe, or wait for ever on a silent one. */
export function isInteractive(context: CliContext): boolean {
  return process.stdin.isTTY === true && context.err.isTerminal
}

/** Said before anything is opened: which flags would have answered. @throws `not-a-terminal` */
export function requireAnswers(context: CliContext, steps: readonly Step[], plan: Plan, answers: Answers): void {
  if (isInteractive(context)) return
  const open = steps.filter(step => step.confirm !== null && answered(step, plan, answers) === null)
  const step = open[0]
  if (step === undefined) return
  throw new HomeregionError('not-a-terminal', {
    fact: `step ${step.id} asks for a confirmation, and there is no terminal to ask at`,
    state: 'Nothing was changed.',
    next:
      step.confirm === 'plain'
        ? 'the same command with --yes'
        : plan.moves.length === 1
          ? `the same command with --confirm ${shellWord(plan.moves[0]?.key ?? '')}`
          : `the same command with --confirm-count ${plan.moves.length}`,
  })
}

/** What the flags say: true, false (a wrong answer), or null (not answered). */
function answered(step: Step, plan: Plan, answers: Answers): boolean | null {
  if (step.confirm === 'plain') return answers.yes ? true : null
  if (plan.moves.length === 1) return answers.confirm === null ? null : answers.confirm === plan.moves[0]?.key
  return answers.confirmCount === null ? null : answers.confirmCount === plan.moves.length
}

async function ask(context: CliContext, step: Step, plan: Plan, leaving: AbortSignal | undefined): Promise<boolean> {
  const { confirm, input } = await import('./prompts.ts')
  const options = { signal: patience(CONFIRM_TIMEOUT_MS, leaving), output: process.stderr }
  try {
    if (step.confirm === 'plain') return await confirm({ message: step.title, default: false }, options)
    const first = plan.moves[0]
    const [what, expected] =
      plan.moves.length === 1 && first !== undefined
        ? [`the key (${showKey(first.key)})`, first.key]
        : ['the number of keys', String(plan.moves.length)]
    const typed = await input(
      { message: `Type ${what} to move ${plan.moves.length === 1 ? 'it' : 'them'} to ${first?.target ?? ''}:` },
      options,
    )
    if (typed === expected) return true
    context.err.line(`That is not ${what}.`)
    return false
  } catch {
    // Ctrl-C, end of input, a terminal that is gone or the time-out: no answer is no.
    return false
  }
}

async function askAtDeadline(step: Step, evidence: readonly Evidence[], leaving: AbortSignal | undefined): Promise<'wait' | 'abort'> {
  const { select } = await import('./prompts.ts')
  const blocked = evidence.filter(e => e.verdict !== 'pass').map(e => e.check)
  try {
    return await select(
      {
        message: `${step.id}: ${blocked.join(', ')} did not pass in time. No answer within ${DEADLINE_TIMEOUT_MS / 1000} s is an abort.`,
        choices: [
          { name: 'abort: what was begun is taken back', value: 'abort' as const },
          { name: `wait as long again (${step.withinMs / 1000} s)`, value: 'wait' as const },
        ],
      },
      { signal: patience(DEADLINE_TIMEOUT_MS, leaving), output: process.stderr },
    )
  } catch {
    return 'abort'
  }
}

function patience(ms: number, leaving: AbortSignal | undefined): AbortSignal {
  return AbortSignal.any([AbortSignal.timeout(ms), ...(leaving === undefined ? [] : [leaving])])
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
type SignalName = (typeof SIGNALS)[number]

/**
 * The first Ctrl-C (or termination, or a terminal that is gone) lets the current step finish and saves; the second leaves at once, by the signal
 * itself. Neither releases a fence.
 */
export function watchSignals(context: CliContext, onFirst: () => void): Signals & { readonly name: () => SignalName | null } {
  let seen: SignalName | null = null
  const leaving = new AbortController()
  const handle = (signal: SignalName) => {
    // A hangup is told to the session and to its foreground, so twice; it is nobody's impatience.
    if (seen !== null && signal === 'SIGHUP') return
    if (seen !== null) {
      stop()
      process.kill(process.pid, signal)
      return
    }
    seen = signal
    leaving.abort()
    context.err.line(
      '\ninterrupted: the current step finishes and the state is saved. Again to leave at once (the journal settles it on resume).',
    )
    onFirst()
  }
  const stop = () => {
    for (const name of SIGNALS) process.off(name, handle)
  }
  for (const name of SIGNALS) process.on(name, handle)
  // A terminal that is gone cannot be read, and that must not end the work; the signal comes before or after the error.
  if (process.stdin.isTTY) process.stdin.on('error', () => undefined)
  return { interrupted: () => seen !== null, leaving: leaving.signal, name: () => seen, stop }
}
