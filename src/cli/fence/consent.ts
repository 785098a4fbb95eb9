import { HomeregionError } from '../../domain/errors.ts'
import type { CliContext } from '../context.ts'
import { isInteractive } from '../operator.ts'

/** How long the question may stand before silence is taken as "no". */
const CONSENT_TIMEOUT_MS = 10 * 60_000

/** Said before anything is connected. @throws `not-a-terminal` */
export function requireAsking(context: CliContext, yes: boolean): void {
  if (yes || isInteractive(context)) return
  throw new HomeregionError('not-a-terminal', {
    fact: 'this asks for the name of the region, and there is no terminal to ask at',
    state: 'Nothing was changed.',
    next: 'the same command with --yes',
  })
}

/** The name of the region, typed at a terminal, or `--yes`. @throws `declined` */
export async function requireConsent(yes: boolean, question: { region: string; to: string }): Promise<void> {
  if (yes) return
  const { input } = await import('../prompts.ts')
  const typed = await input(
    { message: `Type the name of the region (${question.region}) to ${question.to}:` },
    { signal: AbortSignal.timeout(CONSENT_TIMEOUT_MS), output: process.stderr },
  ).catch(() => null)
  if (typed === question.region) return
  throw new HomeregionError('declined', {
    fact: typed === null ? 'no answer is no' : 'that is not the name of the region',
    state: 'Nothing was changed.',
    next: 'the same command again',
  })
}
