import { isHomeregionError } from '../domain/errors.ts'
import type { Step } from '../domain/runbook.ts'
import { isRejoinKind } from '../domain/runbook-lint-rejoin.ts'
import { notInExile, openExile, type Taken, takenKeys } from './lost-keys.ts'
import { passLooks, runAuthored } from './rejoin-authored.ts'
import { FIXED_STEPS } from './rejoin-steps.ts'
import { declined, interrupted, type Rejoining, type RejoinParts, stoppedIn } from './rejoining.ts'

/**
 * Brings a region back that was failed over, along its runbook. What the fixed steps have done is on record in the control plane and in the region,
 * and each can be made again, so that the same command goes on wherever it was ended; an author's step is done once in an exile.
 * @throws `check-refused` while items are not decided, and whatever keeps a step from being done
 */
export async function rejoin(parts: RejoinParts, region: string, reason: string): Promise<void> {
  // Asked before the fence: a region that is in no exile serves its keys, and a mistyped name must not stop it.
  const exile = await openExile(parts.controlPlane, region)
  if (exile === null) throw notInExile(region)
  let known: Promise<readonly Taken[]> | null = null
  const taken = () => (known ??= takenKeys(parts.controlPlane, exile))
  const rejoining: Rejoining = { parts, region, reason, taken }
  for (const [i, step] of parts.runbook.steps.entries()) {
    if (parts.watcher.interrupted()) throw interrupted(region, parts.runbook.steps[i - 1])
    await takeStep(rejoining, step).catch((error: unknown) => {
      throw isHomeregionError(error) ? stoppedIn(error, region, step, parts.runbook.steps[i - 1]) : error
    })
  }
}

async function takeStep(rejoining: Rejoining, step: Step): Promise<void> {
  const { parts, region } = rejoining
  const kind = step.action?.kind
  if (!isRejoinKind(kind)) return await runAuthored(rejoining, step)
  if (step.confirm !== null && !(await parts.confirm(step))) throw declined(region, step)
  await FIXED_STEPS[kind](rejoining)
  await passLooks(rejoining, step)
}
