import type { Evidence } from '../domain/evidence.ts'
import { showKey } from '../domain/key.ts'
import type { PlannedMove } from '../domain/plan.ts'
import type { CheckUse, Step } from '../domain/runbook.ts'
import { raiseAlarm } from './alarm.ts'
import { observe } from './checks/observe.ts'
import { OWN_PROBES } from './checks/watch.ts'
import type { CheckSubject, Engine } from './context.ts'
import type { KeyEnd } from './recover.ts'
import type { RunJournal } from './run-journal.ts'
import { describeEvidence } from './segments.ts'

const PERIOD_MS = 1000

/** Watches after activation. The keys are moved and stay moved; a `fail` here is an alarm for a person, and ends the watch. */
export async function watch(
  engine: Engine,
  journal: RunJournal,
  steps: readonly Step[],
  subject: CheckSubject,
  moves: readonly PlannedMove[],
  observeMs: number | null,
): Promise<{ move: PlannedMove; end: KeyEnd } | null> {
  const first = moves[0]
  if (first === undefined) return null
  const memory = new Map<string, Map<string, unknown>>()
  for (const step of steps) {
    const forMs = observeMs ?? step.forMs
    const started = engine.clock.monotonicMs()
    if (step.watch.length === 0 || forMs <= 0) continue
    engine.operator.report({ type: 'step-started', step, key: null })
    let evidence: readonly Evidence[] = []
    for (;;) {
      evidence = await look(engine, journal.runId, step, subject, moves, started, memory)
      const leftMs = forMs - (engine.clock.monotonicMs() - started)
      engine.operator.report({ type: 'watching', step, evidence, leftMs: Math.max(0, leftMs) })
      if (evidence.some(e => e.verdict === 'fail')) {
        journal.buffer({ evidence })
        return await alarm(engine, journal.runId, first, subject, evidence)
      }
      if (engine.operator.interrupted()) {
        journal.buffer({ evidence })
        return {
          move: first,
          end: {
            outcome: 'moved',
            exit: 'interrupted',
            fact: 'watching was cut short',
            state: 'Every key listed as moved is moved.',
            next: 'homeregion status',
          },
        }
      }
      if (leftMs <= 0) break
      await engine.clock.sleep(Math.min(PERIOD_MS, leftMs))
    }
    journal.buffer({ evidence })
    // What could not be seen at the end was not watched.
    if (evidence.some(e => e.verdict !== 'pass')) return await alarm(engine, journal.runId, first, subject, evidence)
    engine.operator.report({ type: 'step-passed', step, key: null, evidence, tookMs: engine.clock.monotonicMs() - started })
  }
  return null
}

/** Keys are looked at one each round, in turn: a run of thousands must not turn its watch into load. */
async function look(
  engine: Engine,
  runId: string,
  step: Step,
  subject: CheckSubject,
  moves: readonly PlannedMove[],
  startedMonotonicMs: number,
  memory: Map<string, Map<string, unknown>>,
): Promise<readonly Evidence[]> {
  const round = Math.floor((engine.clock.monotonicMs() - startedMonotonicMs) / PERIOD_MS)
  const move = moves[round % moves.length] ?? null
  const memoryOf = (use: CheckUse) => {
    const own = memory.get(use.check) ?? new Map<string, unknown>()
    memory.set(use.check, own)
    return own
  }
  const one = async (use: CheckUse) => {
    return await observe(engine, { ...subject, moves, move, barrierEventId: null, startedMonotonicMs, memory: memoryOf(use) }, use, {
      runId,
      step: step.id,
      attemptId: null,
    })
  }
  // One after the other: a probe that is refused meanwhile would be counted as somebody's stale request.
  const evidence: Evidence[] = []
  for (const use of step.watch) {
    const seen = await one(use)
    evidence.push(seen)
    const probes = seen.check === 'fence-holds' ? Number(seen.facts?.['probes'] ?? 0) : 0
    for (const other of step.watch) memoryOf(other).set(OWN_PROBES, Number(memoryOf(other).get(OWN_PROBES) ?? 0) + probes)
  }
  return evidence
}

async function alarm(
  engine: Engine,
  runId: string,
  move: PlannedMove,
  subject: CheckSubject,
  evidence: readonly Evidence[],
): Promise<{ move: PlannedMove; end: KeyEnd }> {
  const key = evidence.find(e => e.key !== null)?.key ?? move.key
  const fact = `after activation: ${describeEvidence(evidence)}`
  await raiseAlarm(engine, runId, { ...move, key }, subject, fact)
  return {
    move,
    end: {
      outcome: 'moved',
      exit: 'needsHuman',
      fact,
      state: `${showKey(key)} is ${move.target}'s; that ${move.source} still refuses it was not confirmed.`,
      next: 'homeregion doctor',
    },
  }
}
