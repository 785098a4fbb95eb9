import { HomeregionError } from '../../domain/errors.ts'
import type { CliContext } from '../context.ts'
import { isInteractive } from '../operator.ts'

/** How long the question may stand before silence is taken as "no". */
const CONSENT_TIMEOUT_MS = 10 * 60_000

/** The name of the region, typed at a terminal, or `--yes`. @throws `not-a-terminal`, `declined` */
export async function requireConsent(context: CliContext, yes: boolean, question: { region: string; to: string }): Promise<void> {
  if (yes) return
  if (!isInteractive(context))
    throw new HomeregionError('not-a-terminal', {
      fact: `${question.to} asks for the name of the region, and there is no terminal to ask at`,
      state: 'Nothing was changed.',
      next: 'the same command with --yes',
    })
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
