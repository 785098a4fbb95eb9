import { checkSpec } from '../../domain/checks.ts'
import { isHomeregionError } from '../../domain/errors.ts'
import { type Evidence, type Observation, unknown } from '../../domain/evidence.ts'
import type { CheckUse } from '../../domain/runbook.ts'
import type { CheckSubject, Engine } from '../context.ts'
import { CHECK_HANDLERS } from './table.ts'

export type Bound = { readonly runId: string; readonly step: string; readonly attemptId: string | null }

/** One observation, bound to what it was made for. A check that throws has seen nothing: `unknown`, with the cause in words. */
export async function observe(engine: Engine, subject: CheckSubject, use: CheckUse, bound: Bound): Promise<Evidence> {
  const asOf = engine.clock.now()
  const asOfMonotonicMs = engine.clock.monotonicMs()
  const scoped = checkSpec(use.check).scope === 'key'
  const observation = await look(engine, scoped ? subject : { ...subject, move: null }, use)
  return { ...observation, check: use.check, ...bound, key: scoped ? (subject.move?.key ?? null) : null, asOf, asOfMonotonicMs }
}

async function look(engine: Engine, subject: CheckSubject, use: CheckUse): Promise<Observation> {
  try {
    return await (engine.checks?.[use.check] ?? CHECK_HANDLERS[use.check])(engine, subject, use)
  } catch (error) {
    // A superseded operator must stop, not wait at a gate.
    if (isHomeregionError(error, 'superseded')) throw error
    return unknown(
      'this host',
      'an answer',
      isHomeregionError(error) ? error.text.fact : `not observed: ${error instanceof Error ? error.message : String(error)}`,
    )
  }
}
