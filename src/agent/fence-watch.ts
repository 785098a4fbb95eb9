import type { Fence, LoggedFence } from '../domain/fence.ts'
import { raiseAlarm } from './alarm.ts'
import type { AgentParts } from './parts.ts'

/** Fences that should stand, by the control plane's record, looked at and proved in turn. */
export interface FenceWatch {
  look(): Promise<void>
}

const STANDS = ['applied', 'found-lifted']

export function createFenceWatch(parts: AgentParts): FenceWatch {
  const { controlPlane, metrics, log } = parts
  const open = new Set<string>()
  const shown = (told: LoggedFence, holds: boolean | null) =>
    metrics.set('homeregion_fence_holds', { region: told.region, fence: told.fence }, holds === null ? null : holds ? 1 : 0)

  const foundLifted = async (told: LoggedFence): Promise<void> => {
    // Asked again: somebody who is just lifting it has said so before.
    const now = (await controlPlane.fencesTold()).find(f => f.region === told.region && f.fence === told.fence)
    if (now?.id !== told.id) return
    shown(told, false)
    if (told.event === 'found-lifted') return
    const { region, fence, kind } = told
    const fact = `fence ${fence} of ${region} was lifted behind the back of its record: applied by ${told.by} at ${told.at}`
    await controlPlane.logFence([
      parts.newEntry({ region, fence, kind, event: 'found-lifted', by: parts.agentId, runId: null, reason: fact, detail: null }),
    ])
    metrics.count('homeregion_fences_found_lifted_total', { region, fence })
    await raiseAlarm(parts, 'fence-found-lifted', { region, fence, fact })
  }

  const prove = async (told: LoggedFence, fence: Fence): Promise<void> => {
    const id = `${told.region} ${told.fence}`
    const failed = (await fence.verify()).filter(o => o.verdict === 'fail')
    shown(told, failed.length === 0)
    if (failed.length === 0) {
      if (open.delete(id)) log('fence-holds-again', { region: told.region, fence: told.fence })
      return
    }
    if (open.has(id)) return
    open.add(id)
    const fact = `fence ${told.fence} of ${told.region} stands and does not hold: ${failed.map(o => o.observed).join('; ')}`
    await raiseAlarm(parts, 'fence-open', { region: told.region, fence: told.fence, fact })
  }

  return {
    look: async () => {
      const should = (await controlPlane.fencesTold()).filter(f => STANDS.includes(f.event))
      metrics.clear('homeregion_fence_holds')
      const failures: unknown[] = []
      for (const told of should) {
        const fence = configured(parts, told)
        try {
          const status = await fence?.status()
          if (fence === null || status === undefined || status.state === 'unknown') continue
          await (status.state === 'lifted' ? foundLifted(told) : prove(told, fence))
        } catch (error) {
          // A fence that cannot be looked at keeps the others from nothing.
          shown(told, null)
          failures.push(error)
        }
      }
      if (failures.length > 0) throw failures[0]
    },
  }
}

/** null: the configuration does not have it any more. */
function configured(parts: AgentParts, told: LoggedFence): Fence | null {
  if (!parts.config.regions.some(r => r.name === told.region)) return null
  return parts.fences(told.region).find(f => f.name === told.fence) ?? null
}
