import { checkSpec } from '../domain/checks.ts'
import type { Evidence } from '../domain/evidence.ts'
import type { CheckUse, Step } from '../domain/runbook.ts'
import { observe } from './checks/observe.ts'
import type { CheckSubject, Engine } from './context.ts'

export type GateResult =
  | { readonly kind: 'passed'; readonly evidence: readonly Evidence[] }
  | {
      readonly kind: 'not-passed'
      readonly step: Step
      readonly evidence: readonly Evidence[]
      readonly why: 'refused' | 'deadline' | 'interrupted'
    }

/** Pauses between two looks: a tenth of what was waited already, so that a gate that opens is found open at most a tenth later. */
const SHARE_OF_WAIT = 0.1
const SHORTEST_PAUSE_MS = 1
const LONGEST_PAUSE_MS = 500
/** The screen is told of a gate that waits only after this long. */
const QUIET_MS = 300

type Item = { readonly step: Step; readonly use: CheckUse }

/**
 * Waits until every check of the steps has passed, in their order. The first round looks at all of them side by side (calls to one
 * database keep their order on its session): from far away it finds everything there, in one round trip. After it only the first one that
 * did not pass is asked, and once it passes, everything behind it is looked at anew: what is accepted was seen after what it builds on.
 */
export async function passGates(
  engine: Engine,
  runId: string,
  steps: readonly Step[],
  subject: CheckSubject,
  onStepPassed: (step: Step, evidence: readonly Evidence[]) => void,
): Promise<GateResult> {
  const items: readonly Item[] = steps.flatMap(step => step.gate.map(use => ({ step, use })))
  const started = engine.clock.monotonicMs()
  const extraMs = new Map<string, number>()
  const accepted: Evidence[] = []
  let announced = 0
  // Steps are announced in their order, as soon as all of their checks (or none, where they have none) are accepted.
  const announce = () => {
    for (const step of steps.slice(announced)) {
      const seen = accepted.filter(e => e.step === step.id)
      if (seen.length < step.gate.length) return
      announced += 1
      onStepPassed(step, seen)
    }
  }
  const look = (asked: readonly Item[]) =>
    Promise.all(asked.map(({ step, use }) => observe(engine, subject, use, { runId, step: step.id, attemptId: null })))
  /** All checks of the step in one report: nobody wants to mend one cause after the other. What this round has seen is not asked again. */
  const refuse = async (step: Step, why: 'refused' | 'deadline' | 'interrupted', round: readonly Evidence[]): Promise<GateResult> => {
    const own = [...accepted, ...round].filter(e => e.step === step.id)
    return {
      kind: 'not-passed',
      step,
      why,
      evidence: own.length === step.gate.length ? own : await look(items.filter(i => i.step === step)),
    }
  }
  announce()
  let alone = false
  let told = started
  while (accepted.length < items.length) {
    const asked = items.slice(accepted.length, alone ? accepted.length + 1 : undefined)
    const seen = await look(asked)
    const at = seen.findIndex(e => e.verdict !== 'pass')
    accepted.push(...(at === -1 ? seen : seen.slice(0, at)))
    announce()
    const blocked = asked[at]
    const blocking = seen[at]
    if (blocked === undefined || blocking === undefined) {
      alone = false
      continue
    }
    if (blocking.verdict === 'fail' && !checkSpec(blocking.check).waits) return await refuse(blocked.step, 'refused', seen.slice(at))
    if (engine.operator.interrupted()) return await refuse(blocked.step, 'interrupted', seen.slice(at))
    const now = engine.clock.monotonicMs()
    alone = true
    const leftMs = blocked.step.withinMs + (extraMs.get(blocked.step.id) ?? 0) - (now - started)
    if (leftMs <= 0) {
      const refused = await refuse(blocked.step, 'deadline', seen.slice(at))
      if ((await engine.operator.atDeadline(blocked.step, refused.evidence)) === 'abort') return refused
      extraMs.set(blocked.step.id, engine.clock.monotonicMs() - started)
      continue
    }
    if (now - told > QUIET_MS) {
      engine.operator.report({ type: 'gate-waiting', step: blocked.step, key: subject.move?.key ?? null, evidence: [blocking], leftMs })
      told = now
    }
    const pauseMs = Math.min(Math.max((now - started) * SHARE_OF_WAIT, SHORTEST_PAUSE_MS), LONGEST_PAUSE_MS)
    await engine.clock.sleep(Math.min(pauseMs, leftMs))
  }
  return { kind: 'passed', evidence: accepted }
}
