import { showKey } from '../domain/key.ts'
import type { PlannedMove } from '../domain/plan.ts'
import type { Engine } from './context.ts'

/** Tells whoever the configuration names that something needs a person now. A notification that fails is said, and changes nothing. */
export async function raiseAlarm(engine: Engine, runId: string, move: PlannedMove, fact: string): Promise<void> {
  const { alarm } = engine.policy
  if (alarm === null) return
  const environment = {
    HOMEREGION_ALARM: fact,
    HOMEREGION_RUN: runId,
    HOMEREGION_KEY: move.key,
    HOMEREGION_SOURCE: move.source,
    HOMEREGION_TARGET: move.target,
  }
  const failed = await engine.hooks.run(alarm.command, environment, alarm.timeoutMs).then(
    ({ code, output }) => (code === 0 ? null : `it ended with ${code}: ${output.slice(-200)}`),
    (error: unknown) => (error instanceof Error ? error.message : String(error)),
  )
  if (failed !== null)
    engine.operator.report({ type: 'note', text: `the alarm for ${showKey(move.key)} could not be delivered: ${failed}` })
}
