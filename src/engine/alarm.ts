import type { FenceEntry } from '../domain/fence.ts'
import { showKey } from '../domain/key.ts'
import type { PlannedMove } from '../domain/plan.ts'
import type { CheckSubject, Engine } from './context.ts'
import { coded, proofsOf } from './region-fences.ts'

/**
 * Tells whoever the configuration names that something needs a person now, and leaves it in the fence log for `status`, where a fence of the
 * whole region is what gave way. What cannot be told is said, and changes nothing.
 */
export async function raiseAlarm(engine: Engine, runId: string, move: PlannedMove, subject: CheckSubject, fact: string): Promise<void> {
  const told = await Promise.all([deliver(engine, runId, move, fact), record(engine, runId, move, subject)])
  for (const failed of told.flat())
    engine.operator.report({ type: 'note', text: `the alarm for ${showKey(move.key)} could not be told: ${failed}` })
}

async function deliver(engine: Engine, runId: string, move: PlannedMove, fact: string): Promise<readonly string[]> {
  const { alarm } = engine.policy
  if (alarm === null) return []
  const environment = {
    HOMEREGION_ALARM: fact,
    HOMEREGION_RUN: runId,
    HOMEREGION_KEY: move.key,
    HOMEREGION_SOURCE: move.source,
    HOMEREGION_TARGET: move.target,
  }
  try {
    const { code, output } = await engine.hooks.run(alarm.command, environment, alarm.timeoutMs)
    return code === 0 ? [] : [`it ended with ${code}: ${output.slice(-200)}`]
  } catch (error) {
    return [coded(error).text.fact]
  }
}

async function record(engine: Engine, runId: string, move: PlannedMove, subject: CheckSubject): Promise<readonly string[]> {
  const standing = subject.standing.filter(s => s.region === move.source)
  const looks = engine
    .fences(move.source)
    .filter(fence => standing.some(s => s.name === fence.name))
    .map(async (fence): Promise<readonly FenceEntry[]> => {
      const failed = (await proofsOf(fence)).filter(proof => proof.verdict === 'fail').map(proof => proof.observed)
      if (failed.length === 0) return []
      const { host, user } = engine.holder
      const where = { region: fence.region, fence: fence.name, kind: fence.kind, event: 'found-lifted' as const, host, runId }
      return [
        { id: engine.newId(), at: engine.clock.now(), by: `${user}@${host}`, reason: 'watched by its run', detail: { failed }, ...where },
      ]
    })
  try {
    const entries = (await Promise.all(looks)).flat()
    if (entries.length > 0) await engine.controlPlane.logFence(entries)
    return []
  } catch (error) {
    return [`not in the fence log: ${coded(error).text.fact}`]
  }
}
