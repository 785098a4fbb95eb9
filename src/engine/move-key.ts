import { formatMs } from '../domain/duration.ts'
import type { Evidence } from '../domain/evidence.ts'
import { showKey } from '../domain/key.ts'
import type { Step } from '../domain/runbook.ts'
import { announceOwner } from './actions/activate.ts'
import { beginCatchUp, endUnsentFence, startFenceEarly } from './actions/fence.ts'
import { applyAction } from './actions/table.ts'
import { passGates } from './gate.ts'
import { isMoved, type KeyMove } from './key-move.ts'
import { describeEvidence, type Segment, segmentsOf } from './segments.ts'

/** A gate that did not open, with what it saw. */
export class GateNotPassed extends Error {
  readonly step: Step
  readonly evidence: readonly Evidence[]
  readonly why: 'refused' | 'deadline' | 'interrupted'
  constructor(step: Step, evidence: readonly Evidence[], why: 'refused' | 'deadline' | 'interrupted') {
    super(
      `step ${step.id} ${why === 'deadline' ? `did not pass within ${step.withinMs} ms` : why === 'refused' ? 'was refused' : 'was interrupted'}: ${describeEvidence(evidence)}`,
    )
    this.name = 'GateNotPassed'
    this.step = step
    this.evidence = evidence
    this.why = why
  }
}

/**
 * Takes one key from where it stands to the end of its steps. `doneSteps` are the author's steps that the journal knows as done.
 * Throws what stopped it; nothing is undone here (see recover.ts).
 */
export async function moveKey(key: KeyMove, doneSteps: ReadonlySet<string>): Promise<void> {
  const segments = remaining(key)
  for (const [i, segment] of segments.entries()) {
    if (key.engine.operator.interrupted()) {
      await endUnsentFence(key)
      throw new GateNotPassed(segment.head, [], 'interrupted')
    }
    await perform(key, segment, segments[i + 1]?.head ?? null, doneSteps)
  }
  await key.pending
}

/** The segments from the key's own state on: what is fenced is not drained again. */
function remaining(key: KeyMove): readonly Segment[] {
  const segments = segmentsOf(key.steps)
  const at = (kind: string) => segments.findIndex(s => s.head.action?.kind === kind)
  if (isMoved(key.move, key.record)) return segments.slice(at('activate'))
  if (key.record.state === 'FENCED' || key.record.state === 'CATCH_UP') return segments.slice(at('fence'))
  return segments
}

async function perform(key: KeyMove, segment: Segment, next: Step | null, doneSteps: ReadonlySet<string>): Promise<void> {
  const { engine, journal, move } = key
  const started = engine.clock.monotonicMs()
  const passed = (step: Step, evidence: readonly Evidence[]) => {
    engine.operator.report({ type: 'step-passed', step, key: move.key, evidence, tookMs: engine.clock.monotonicMs() - started })
    if (step.action?.kind === 'fence') beginCatchUp(key)
  }
  engine.operator.report({ type: 'step-started', step: segment.head, key: move.key })
  if (!isDone(segment.head, doneSteps)) await applyAction(key, segment.head)
  if (segment.head.action?.kind === 'drain' && next?.action?.kind === 'fence') startFenceEarly(key, next)
  const announced = segment.head.action?.kind === 'activate' ? announceOwner(key) : Promise.resolve()
  const [gate] = await Promise.all([passGates(engine, journal.runId, segment.steps, key.subject, passed), announced])
  if (segment.head.action?.kind === 'activate') await engine.fault('activate:announced')
  journal.buffer({ evidence: gate.evidence })
  if (gate.kind === 'passed') return
  key.caughtUp.abort()
  await endUnsentFence(key)
  throw new GateNotPassed(gate.step, gate.evidence, gate.why)
}

/** The author's own steps are never repeated; those that move ownership are idempotent and decided by the key's state. */
function isDone(step: Step, doneSteps: ReadonlySet<string>): boolean {
  return step.action !== null && !['drain', 'fence', 'activate'].includes(step.action.kind) && doneSteps.has(step.id)
}

export function movedDetail(key: KeyMove): string {
  const stop = key.stoppedMs === null ? '' : `; closed to writers for at most ${formatMs(Math.ceil(key.stoppedMs))} by this host's clock`
  return `${showKey(key.move.key)} is at home in ${key.record.homeRegion}, epoch ${key.record.epoch}${stop}`
}
