import type { Step } from '../../domain/runbook.ts'

/** How long the question may stand before silence is taken as "no"; the region stays fenced meanwhile. */
const CONFIRM_TIMEOUT_MS = 10 * 60_000

/** A plain yes to a step of the runbook; off a terminal the command was refused before, unless it was given with --yes. */
export async function confirmStep(yes: boolean, step: Step): Promise<boolean> {
  if (yes) return true
  const { confirm } = await import('../prompts.ts')
  const options = { signal: AbortSignal.timeout(CONFIRM_TIMEOUT_MS), output: process.stderr }
  return await confirm({ message: step.title, default: false }, options).catch(() => false)
}
