import { BOUNDARY_FENCE } from '../domain/fence.ts'
import { raiseAlarm } from './alarm.ts'
import type { AgentParts } from './parts.ts'

/** A region that was failed over and answers again is closed at once, before anybody writes in it or asks it anything else. */
export interface ExileWatch {
  /** Tries one region in exile; nothing happens while it is dark. */
  look(region: string): Promise<void>
}

export function createExileWatch(parts: AgentParts): ExileWatch {
  const { controlPlane, metrics, log } = parts
  return {
    look: async region => {
      const exiles = (await controlPlane.exiles()).filter(e => e.endedAt === null)
      metrics.set('homeregion_exiles_open', {}, exiles.length)
      const exile = exiles.find(e => e.region === region)
      const boundary = parts.fences(region).find(f => f.name === BOUNDARY_FENCE)
      if (exile === undefined || boundary === undefined) return
      // Unknown: it is dark still. `applying`: whoever died on the way is finished.
      const { state } = await boundary.status()
      if (state === 'applied' || state === 'unknown') return
      const reason = `${region} is in exile since ${exile.since} and answers again`
      log('exile-answers', { region, state })
      const lines = await boundary.apply({ reason, by: parts.agentId, runId: exile.runIds.at(-1) ?? null })
      log('exile-fenced', { region, holds: lines })
      await raiseAlarm(parts, 'exile-answers', {
        region,
        fence: BOUNDARY_FENCE,
        fact: `${reason}: its boundary is closed for all keys; homeregion rejoin ${region}`,
      })
    },
  }
}
