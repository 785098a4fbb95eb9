import type { Evidence } from '../domain/evidence.ts'
import type { Plan } from '../domain/plan.ts'
import { observe } from './checks/observe.ts'
import type { Engine } from './context.ts'
import { partsOf } from './segments.ts'

/** The checks that stand before the first change, looked at once, side by side. Opens no run and changes nothing. */
export async function firstLook(engine: Engine, plan: Plan): Promise<readonly Evidence[]> {
  const subject = {
    moves: plan.moves,
    move: plan.moves[0] ?? null,
    barrierEventId: null,
    startedMonotonicMs: engine.clock.monotonicMs(),
    standing: [],
    memory: new Map<string, unknown>(),
  }
  const dropped = new Set(plan.dropped.map(d => d.check))
  const uses = partsOf(plan.pinned.runbook.steps).before.flatMap(step =>
    step.gate.filter(use => !dropped.has(use.check)).map(use => ({ step, use })),
  )
  return await Promise.all(uses.map(({ step, use }) => observe(engine, subject, use, { runId: '', step: step.id, attemptId: null })))
}
