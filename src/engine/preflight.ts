import { HomeregionError } from '../domain/errors.ts'
import { showKey } from '../domain/key.ts'
import type { Plan } from '../domain/plan.ts'
import type { Step } from '../domain/runbook.ts'
import type { CheckSubject, Engine } from './context.ts'
import { passGates } from './gate.ts'
import type { RunJournal } from './run-journal.ts'
import { applyOnce } from './run-step.ts'
import { describeEvidence } from './segments.ts'

/** Preflight and confirmation: nothing has been touched, so every way out of here leaves the keys as they were. */
export async function beforeMoving(
  engine: Engine,
  journal: RunJournal,
  steps: readonly Step[],
  subject: CheckSubject,
  plan: Plan,
  doneSteps: ReadonlySet<string>,
): Promise<void> {
  const refuse = async (error: HomeregionError): Promise<never> => {
    await journal.commit('refuse', { runState: 'REFUSED', keyOutcomes: subject.moves.map(m => ({ key: m.key, outcome: 'not-moved' })) })
    throw error
  }
  for (const step of steps) {
    engine.operator.report({ type: 'step-started', step, key: null })
    const started = engine.clock.monotonicMs()
    await applyOnce(engine, journal, step, subject, doneSteps)
    const first = { ...subject, move: subject.moves[0] ?? null }
    const gate = await passGates(engine, journal.runId, [step], first, () => undefined)
    journal.buffer({ evidence: gate.evidence })
    if (gate.kind === 'not-passed') {
      const code = gate.why === 'interrupted' ? 'interrupted' : 'check-refused'
      await refuse(
        new HomeregionError(
          code,
          {
            fact: `${step.id}: ${describeEvidence(gate.evidence)}`,
            state: 'Nothing was moved; no boundary was touched.',
            next: 'homeregion doctor',
          },
          { fields: { evidence: gate.evidence } },
        ),
      )
    }
    if (step.confirm !== null && !(await engine.operator.confirm(step, plan)))
      await refuse(
        new HomeregionError('declined', {
          fact: `${step.id} was not confirmed`,
          state: 'Nothing was moved; no boundary was touched.',
          next:
            subject.moves.length === 1
              ? `homeregion transfer ${showKey(subject.moves[0]?.key ?? '')} --to ${subject.moves[0]?.target ?? ''}`
              : 'homeregion transfer … with the number of keys, when asked',
        }),
      )
    engine.operator.report({ type: 'step-passed', step, key: null, evidence: gate.evidence, tookMs: engine.clock.monotonicMs() - started })
  }
}
