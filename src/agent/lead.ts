import type { Config } from '../domain/config.ts'
import type { AgentParts } from './parts.ts'

/** Whether this agent leads, as the control plane last said. One leads at a time: it alone grants leases, writes heartbeats and watches fences. */
export interface Lead {
  /** How long one taking lasts. */
  readonly forMs: number
  /** Asks for the lead, or keeps it. */
  ask(): Promise<boolean>
  /** False also when the control plane has not answered for as long as the lead lasts: another may have it by now. */
  leading(): boolean
  /** Somebody leads: this agent, or another that was heard of within the length of a lead. */
  somebodyLeads(): boolean
}

// With a third of the shortest lease, a second agent takes over long before a lease that was renewed at a third of its length is over.
const SHARE = 3
const WITHOUT_LEASES_MS = 10_000

export function createLead(parts: Pick<AgentParts, 'config' | 'leases' | 'agentId' | 'clock' | 'log' | 'metrics'>): Lead {
  const forMs = leadMs(parts.config)
  let answer: { readonly leads: boolean; readonly askedAtMs: number } | null = null
  const fresh = () => answer !== null && parts.clock.monotonicMs() - answer.askedAtMs < forMs
  const leading = () => answer !== null && answer.leads && fresh()
  parts.metrics.live('homeregion_agent_leading', {}, () => (leading() ? 1 : 0))
  return {
    forMs,
    leading,
    somebodyLeads: fresh,
    ask: async () => {
      // Before the question: the control plane counts from when it got it, which is later.
      const askedAtMs = parts.clock.monotonicMs()
      const leads = await parts.leases.leadAgents(parts.agentId, forMs)
      if (answer?.leads !== leads) parts.log(leads ? 'leading' : 'following', { agent: parts.agentId })
      answer = { leads, askedAtMs }
      return leads
    },
  }
}

function leadMs(config: Config): number {
  const durations = config.regions.flatMap(r => (r.lease === null ? [] : [r.lease.durationMs]))
  return durations.length === 0 ? WITHOUT_LEASES_MS : Math.max(500, Math.floor(Math.min(...durations) / SHARE))
}
