import type { OutsideFence } from '../domain/checks.ts'
import type { Acknowledgement, LossEstimate } from '../domain/loss.ts'
import type { Plan } from '../domain/plan.ts'
import { afterCommit } from './forced-after.ts'
import { attestationOf, sinceItWasSaid } from './forced-attestation.ts'
import { beforeCommit } from './forced-before.ts'
import { end, giveUp, onlyForward } from './forced-ends.ts'
import type { Attestation, ForcedEnd, ForcedMove } from './forced-move.ts'
import { createForcedMove, type ForcedParts, type ForcedResume, takeOverForced } from './forced-opening.ts'
import { settleForced } from './forced-settle.ts'
import { keepLease } from './lease-keeper.ts'
import { createRunJournal } from './run-journal.ts'

export type ForcedStart = {
  readonly plan: Plan
  readonly estimate: LossEstimate
  readonly fence: OutsideFence
  readonly acknowledgement: Acknowledgement
  readonly attestation: Attestation | null
  readonly reason: string | null
  readonly observeMs: number | null
  /** Begun by an agent, with no person behind it. */
  readonly automatic?: boolean
}

/** Opens the run and takes it as far as it goes. Before the commit every way out changes nothing; after it there is only forward. */
export async function startForced({ engine, operator, settings }: ForcedParts, start: ForcedStart): Promise<ForcedEnd> {
  const { plan, estimate, fence } = start
  const lease = await engine.controlPlane.openRun(plan, engine.holder, start.reason, { seize: true })
  const journal = createRunJournal(engine, lease)
  const move = createForcedMove({ engine, operator, settings }, journal, plan.pinned.runbook, {
    ...{ plan, fence, acknowledgement: start.acknowledgement, attestation: start.attestation, observeMs: start.observeMs },
    automatic: start.automatic === true,
    ...{ doneSteps: new Set<string>(), keys: estimate.keys.map(({ key, epoch }) => ({ key, epoch })) },
  })
  operator.report({ type: 'run-opened', runId: lease.runId, plan })
  return await kept(move, async () => {
    await engine.fault('open-run:after')
    if (move.attestation !== null) journal.buffer({ evidence: [await attestationOf(move)] })
    return await beforeCommit(move)
  })
}

/** Takes the run over and goes on: from the estimate where nothing was committed, from opening the target where it was. */
export async function resumeForced(parts: ForcedParts, resume: ForcedResume): Promise<ForcedEnd> {
  const move = await takeOverForced(parts, resume)
  return await kept(move, async () => {
    if (await settleForced(move)) return await afterCommit(move)
    await sinceItWasSaid(move)
    return await beforeCommit(move)
  })
}

/** Before the commit: what the run put up comes down and nothing was handed over. After it there is no way back. */
export async function abortForced(parts: ForcedParts, resume: ForcedResume): Promise<ForcedEnd> {
  const move = await takeOverForced(parts, resume)
  return await kept(move, async () => {
    if (await settleForced(move)) return onlyForward(move, 'it cannot be taken back: ownership was handed over')
    await giveUp(move, 'ABORTED')
    return end(move, 'done', 'ABORTED', 'aborted', `Nothing was handed over; the keys are still ${move.source}'s on record.`, null)
  })
}

async function kept(move: ForcedMove, work: () => Promise<ForcedEnd>): Promise<ForcedEnd> {
  const keeper = keepLease(move.engine, move.journal)
  try {
    return await work()
  } finally {
    keeper.stop()
  }
}
