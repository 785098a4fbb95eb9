import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { createControlPlane } from '../adapters/control-plane/control-plane-store.ts'
import { newEntry } from '../adapters/files/fence-entry.ts'
import { createRegionPulse } from '../adapters/postgres-region/region-pulse.ts'
import { systemClock } from '../adapters/system/clock.ts'
import { createFaultPoint } from '../adapters/system/fault-point.ts'
import type { AutomaticFailover } from '../agent/automatic-failover.ts'
import { createMetrics } from '../agent/metrics.ts'
import type { AgentLog, AgentParts } from '../agent/parts.ts'
import { type Config, otherRegions, type RegionConfig } from '../domain/config.ts'
import type { RegionPulse } from '../domain/pulse.ts'
import { compareOwnership } from '../engine/compare-ownership.ts'
import { composeHooks, composeSecrets } from './compose-children.ts'
import type { World } from './context.ts'

/** What an agent works with, beside the world that every verb has: sessions of its own for leases and looks. */
export function composeAgent(
  config: Config,
  env: Readonly<Record<string, string | undefined>>,
  world: World,
  log: AgentLog,
  automatic: AutomaticFailover | null,
): { readonly parts: AgentParts; readonly close: () => Promise<void> } {
  const secrets = composeSecrets(config, env)
  const timed = (callTimeoutMs: number): Config => ({ ...config, policy: { ...config.policy, callTimeoutMs } })
  const leases = createControlPlane(timed(leaseTimeoutMs(config, config.regions)), secrets)
  const pulses = new Map<string, RegionPulse>(
    config.regions.map(region => [region.name, createRegionPulse(region, config, secrets, leaseTimeoutMs(config, [region]))]),
  )
  const vantage = `agent ${hostname()}`
  return {
    parts: {
      config,
      leases,
      controlPlane: world.controlPlane,
      compareOwnership: async name =>
        await compareOwnership(
          { controlPlane: world.controlPlane, region: at => world.region(at), clock: systemClock },
          name,
          otherRegions(config, name),
        ),
      pulse: name => {
        const found = pulses.get(name)
        if (found === undefined) throw new Error(`there is no region named ${name}`)
        return found
      },
      stream: name => world.stream(name),
      fences: name => world.fences(name),
      newEntry: newEntry(hostname()),
      hooks: composeHooks(config, env),
      automatic,
      clock: systemClock,
      fault: createFaultPoint(env['HOMEREGION_FAULT']),
      log,
      metrics: createMetrics(),
      newId: randomUUID,
      agentId: `${vantage} ${process.pid} ${randomUUID().slice(0, 8)}`,
      vantage,
    },
    close: async () => void (await Promise.allSettled([leases.close(), ...[...pulses.values()].map(p => p.close())])),
  }
}

// Three calls make a renewal, and one that failed has to leave time for another before the lease is over.
const CALL_SHARE = 6
const SHORTEST_CALL_MS = 500

function leaseTimeoutMs({ policy }: Config, regions: readonly RegionConfig[]): number {
  const durations = regions.flatMap(r => (r.lease === null ? [] : [r.lease.durationMs]))
  return Math.min(policy.callTimeoutMs, Math.max(SHORTEST_CALL_MS, Math.floor(Math.min(...durations, Infinity) / CALL_SHARE)))
}
