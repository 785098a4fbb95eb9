import { OUTSIDE_FENCES, type OutsideFence } from '../domain/checks.ts'
import type { Run } from '../domain/journal.ts'
import type { Acknowledgement } from '../domain/loss.ts'
import type { Plan } from '../domain/plan.ts'
import type { Runbook } from '../domain/runbook.ts'
import { forcedChecks } from './checks/forced.ts'
import type { Engine } from './context.ts'
import type { Attestation, ForcedMove, ForcedOperator, ForcedSettings } from './forced-move.ts'
import { createRunJournal, type RunJournal } from './run-journal.ts'

export type ForcedParts = { readonly engine: Engine; readonly operator: ForcedOperator; readonly settings: ForcedSettings }

export type ForcedResume = {
  readonly run: Run
  readonly runbook: Runbook
  readonly fence: OutsideFence
  readonly acknowledgement: Acknowledgement
  readonly attestation: Attestation | null
  readonly doneSteps: ReadonlySet<string>
  readonly observeMs: number | null
  readonly takeOver: boolean
}

/** A run that some process began: with a new token, and with what is on record of it. */
export async function takeOverForced({ engine, operator, settings }: ForcedParts, resume: ForcedResume): Promise<ForcedMove> {
  const { run } = resume
  const lease = await engine.controlPlane.takeRun(run.id, engine.holder, resume.takeOver)
  await engine.fault('take-run:after')
  const journal = createRunJournal(engine, lease)
  const pinned = { runbook: resume.runbook, text: run.runbookText, sha256: run.runbookSha256, origin: `run ${run.id}` }
  const plan: Plan = { id: run.planId, pinned, moves: run.moves, alreadyThere: [], dropped: [] }
  return createForcedMove({ engine, operator, settings }, journal, resume.runbook, {
    // Whoever resumes is a person.
    automatic: false,
    ...{ plan, fence: resume.fence, acknowledgement: resume.acknowledgement, attestation: resume.attestation },
    ...{ doneSteps: resume.doneSteps, observeMs: resume.observeMs, keys: run.moves.map(({ key, epoch }) => ({ key, epoch })) },
  })
}

export function createForcedMove(
  { engine, operator, settings }: ForcedParts,
  journal: RunJournal,
  runbook: Runbook,
  known: Pick<ForcedMove, 'plan' | 'fence' | 'acknowledgement' | 'attestation' | 'doneSteps' | 'keys' | 'observeMs' | 'automatic'>,
): ForcedMove {
  const [first] = known.plan.moves
  if (first === undefined) throw new RangeError('a forced failover without a key')
  const move: ForcedMove = {
    ...known,
    ...{ operator, settings, journal, moves: known.plan.moves, source: first.source, target: first.target },
    engine: { ...engine, checks: forcedChecks(() => move) },
    runbook: withoutOthers(runbook, known.fence),
    ...{ vantage: null, estimate: null, heldAtMs: null, records: [], openAttempt: null },
  }
  return move
}

/** The plan named the one fence from outside that it stands on, and dropped the others in the open. */
function withoutOthers(runbook: Runbook, fence: OutsideFence): Runbook {
  const others = new Set<string>(OUTSIDE_FENCES.filter(check => check !== fence))
  return { ...runbook, steps: runbook.steps.map(step => ({ ...step, gate: step.gate.filter(use => !others.has(use.check)) })) }
}
