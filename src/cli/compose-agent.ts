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
import type { Config, RegionConfig } from '../domain/config.ts'
import type { ControlPlane, KnownRecord } from '../domain/ports.ts'
import type { RegionPulse } from '../domain/pulse.ts'
import { inTime } from '../engine/in-time.ts'
import { describeAhead, stillAhead } from '../engine/regions-ahead.ts'
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
      compareOwnership: async name => await compareOwnership(world, name, othersOf(config, name)),
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

/** Where the regions share a database it has forgotten what the control plane has, and there is nobody else to ask. */
function othersOf({ topology, regions }: Config, name: string): readonly string[] {
  return topology === 'shared' ? [] : regions.map(r => r.name).filter(other => other !== name)
}

const PAGE = 2_000
const NAMED = 5

type Compared = Pick<World, 'region'> & { readonly controlPlane: Pick<ControlPlane, 'listOwnership' | 'ownership'> }

/**
 * Of the keys that the control plane gives to `home`, and of those that may be written there: of one that was registered and taken in the time that
 * was lost, only the regions know.
 */
export async function compareOwnership(
  parts: Compared,
  home: string,
  others: readonly string[],
): ReturnType<AgentParts['compareOwnership']> {
  const sources: readonly ((after: string | null) => Promise<readonly KnownRecord[]>)[] = [
    after => parts.controlPlane.listOwnership({ homeRegion: home, limit: PAGE, ...(after === null ? {} : { after }) }),
    after => parts.region(home).homeKeys({ after, limit: PAGE }),
  ]
  const silent = new Set<string>()
  if (others.length === 0) return { contradicted: null, silent: [] }
  for (const source of sources) {
    for (let after: string | null = null, full = true; full; ) {
      const page: readonly KnownRecord[] = await source(after)
      const asked = others.filter(other => !silent.has(other))
      const found = await Promise.all(asked.map(async other => ({ other, said: await contradiction(parts, other, page) })))
      for (const { other, said } of found) if (said === null) silent.add(other)
      const said = found.flatMap(f => f.said ?? [])
      if (said.length > 0) return { contradicted: said.join('; '), silent: [...silent] }
      after = page.at(-1)?.key ?? null
      full = page.length === PAGE
    }
  }
  return { contradicted: null, silent: [...silent] }
}

// A healthy region's lease runs out while a dark one is asked.
const ANSWER_MS = 1_000

/** All rows of the page that are ahead, not the first few: those may be moves that the control plane knows. null: no answer. */
async function contradiction(
  { controlPlane, region }: Compared,
  other: string,
  page: readonly KnownRecord[],
): Promise<readonly string[] | null> {
  const ahead = await inTime({ clock: systemClock }, ANSWER_MS, region(other).aheadOf(page, PAGE), null)
  if (ahead === null) return null
  const left = await stillAhead(controlPlane, ahead.rows)
  if (left.length === 0) return []
  const more = left.length > NAMED ? ` +${left.length - NAMED} more` : ''
  const named = left.slice(0, NAMED).map(({ row, record }) => describeAhead(other, row, record))
  return [`${named.join('; ')}${more}`]
}

// Three calls make a renewal, and one that failed has to leave time for another before the lease is over.
const CALL_SHARE = 6
const SHORTEST_CALL_MS = 500

function leaseTimeoutMs({ policy }: Config, regions: readonly RegionConfig[]): number {
  const durations = regions.flatMap(r => (r.lease === null ? [] : [r.lease.durationMs]))
  return Math.min(policy.callTimeoutMs, Math.max(SHORTEST_CALL_MS, Math.floor(Math.min(...durations, Infinity) / CALL_SHARE)))
}
