import { type Exile, exileFenceReason } from '../domain/failover.ts'
import { BOUNDARY_FENCE, type Fence } from '../domain/fence.ts'
import { raiseAlarm } from './alarm.ts'
import type { AgentParts } from './parts.ts'

/** A region that was failed over and answers again is closed at once, before anybody writes in it or asks it anything else. */
export interface ExileWatch {
  /** Tries one region in exile; nothing happens while it is dark. */
  look(region: string): Promise<void>
}

export function createExileWatch(parts: AgentParts): ExileWatch {
  const { controlPlane, metrics, log } = parts
  /** Ended exiles whose region was seen without a fence of theirs. */
  const clean = new Set<string>()

  /** A fence that came after the region had been let in again is nobody's to lift but ours. */
  const takeBackLate = async (region: string, ended: readonly Exile[], boundary: Fence): Promise<void> => {
    if (ended.every(e => clean.has(e.id))) return
    const { state, cause, asked } = await boundary.status()
    if (state === 'unknown') return
    const late = ended.find(e => cause?.reason === exileFenceReason(e))
    if (state !== 'lifted' && late !== undefined && asked !== null) {
      const reason = `the exile of ${region} is over since ${late.endedAt ?? '?'}`
      const lines = await boundary.lift({ reason, by: parts.agentId, runId: null }, asked)
      log('exile-fence-taken-back', { region, lines })
    }
    for (const { id } of ended) clean.add(id)
  }

  const exilesOf = async (region: string): Promise<{ readonly open: Exile | undefined; readonly ended: readonly Exile[] }> => {
    const exiles = await controlPlane.exiles()
    metrics.set('homeregion_exiles_open', {}, exiles.filter(e => e.endedAt === null).length)
    const here = exiles.filter(e => e.region === region)
    return { open: here.find(e => e.endedAt === null), ended: here.filter(e => e.endedAt !== null) }
  }

  return {
    look: async region => {
      const boundary = parts.fences(region).find(f => f.name === BOUNDARY_FENCE)
      const { open: exile, ended } = await exilesOf(region)
      if (boundary === undefined) return
      if (exile === undefined) return await takeBackLate(region, ended, boundary)
      // Unknown: it is dark still. `applying`: whoever died on the way is finished.
      const { state } = await boundary.status()
      if (state === 'applied' || state === 'unknown') return
      const reason = exileFenceReason(exile)
      log('exile-answers', { region, state })
      const lines = await boundary.apply({ reason, by: parts.agentId, runId: exile.runIds.at(-1) ?? null })
      log('exile-fenced', { region, holds: lines })
      // Whoever brought the region back meanwhile did not see this fence. An exile that ends from here on is met by the next look.
      const now = await exilesOf(region)
      if (now.open === undefined) return await takeBackLate(region, now.ended, boundary)
      await raiseAlarm(parts, 'exile-answers', {
        region,
        fence: BOUNDARY_FENCE,
        fact: `${reason}: its boundary is closed for all keys; homeregion rejoin ${region}`,
      })
    },
  }
}
