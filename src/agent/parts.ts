import type { Config } from '../domain/config.ts'
import type { Json } from '../domain/evidence.ts'
import type { FailoverControl } from '../domain/failover.ts'
import type { Fence, FenceEntry } from '../domain/fence.ts'
import type { Clock, Comparison, ControlPlane, FaultPoint, Hooks, RegionStream } from '../domain/ports.ts'
import type { RegionPulse } from '../domain/pulse.ts'
import type { AutomaticFailover } from './automatic-failover.ts'
import type { Metrics } from './metrics.ts'

/** One line of the agent's log; never a secret. */
export type AgentLog = (event: string, fields?: Readonly<Record<string, Json>>) => void

/** What an agent works with. Leases have a session to the control plane of their own: nothing stands in front of a renewal. */
export type AgentParts = {
  readonly config: Config
  readonly leases: Pick<FailoverControl, 'leadAgents' | 'grantLease' | 'noteLeaseStops' | 'leaseStates'>
  readonly controlPlane: Pick<ControlPlane, 'recordObservation' | 'exiles' | 'fencesTold' | 'logFence'>
  /**
   * What the other regions know of the region's keys that the control plane has forgotten (null: nothing), and who did not answer. Asked before a
   * control plane grants that has lost commits, or may have.
   */
  readonly compareOwnership: (region: string) => Promise<Comparison>
  readonly pulse: (region: string) => RegionPulse
  readonly stream: (region: string) => RegionStream
  readonly fences: (region: string) => readonly Fence[]
  readonly newEntry: (entry: Omit<FenceEntry, 'id' | 'at' | 'host'>) => FenceEntry
  readonly hooks: Hooks
  /** null: this agent fails nothing over, whatever the policy says. */
  readonly automatic: AutomaticFailover | null
  readonly clock: Clock
  readonly fault: FaultPoint
  readonly log: AgentLog
  readonly metrics: Metrics
  readonly newId: () => string
  /** Of this process, for the lead. */
  readonly agentId: string
  /** Of this machine, for what is seen from it: an agent that is started again goes on with its own rows. */
  readonly vantage: string
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
