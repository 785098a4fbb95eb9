import type { Config } from '../domain/config.ts'
import { estimateLoss, type LastApplied, type LossEstimate, type Sight } from '../domain/loss.ts'
import type { Engine } from './context.ts'
import { inTime } from './in-time.ts'

export type LossQuestion = {
  readonly source: string
  readonly target: string
  readonly keys: readonly { readonly key: string; readonly epoch: number }[]
  readonly loss: Config['policy']['loss']
  readonly sights: readonly Sight[]
  /** Negative: the fence from outside that is meant will hold so much later, and the source may write until then. */
  readonly stoppedAgeMs: number | null
  /** How long a target or a Kafka may take; what it does not answer in that time is not known. */
  readonly patienceMs: number
  /** Of `readApplied`, where it was begun already; the keys are those of the question. */
  readonly applied?: Promise<ReadonlyMap<string, LastApplied>>
}

/** What the target has applied of each key; nothing of any where it cannot say in time. */
export async function readApplied(
  engine: Engine,
  target: string,
  keys: readonly string[],
  patienceMs: number,
): Promise<ReadonlyMap<string, LastApplied>> {
  return await inTime(engine, patienceMs, engine.region(target).lastApplied(keys), new Map())
}

/** Reads what the estimate stands on, side by side, each for all keys at once. What cannot be asked is unknown, and never none. */
export async function gatherLoss(engine: Engine, question: LossQuestion): Promise<LossEstimate> {
  const { source, target, keys, patienceMs } = question
  const kafkaAnswers = question.sights.some(s => s.what === 'kafka' && s.lastContactAgeMs === 0)
  const [observations, lastApplied, recoverable] = await Promise.all([
    engine.controlPlane.observations(),
    question.applied ??
      readApplied(
        engine,
        target,
        keys.map(k => k.key),
        patienceMs,
      ),
    kafkaAnswers ? inTime(engine, patienceMs, engine.stream(source).eventsBeyond(engine.policy.inboxGroup(target)), null) : null,
  ])
  const { loss, sights, stoppedAgeMs } = question
  return estimateLoss({ source, target, keys, loss, sights, stoppedAgeMs, observations, lastApplied, recoverable })
}
