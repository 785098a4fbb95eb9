import { createAgentFacts } from '../adapters/control-plane/agent-facts.ts'
import { createRegionPulse } from '../adapters/postgres-region/region-pulse.ts'
import type { Config, RegionConfig } from '../domain/config.ts'
import { composeSecrets } from './compose-children.ts'

export type ClockReading = { readonly epochMs: number; readonly atMs: number; readonly roundTripMs: number }

export type LeaseFacts = {
  /** Who leads the agents. */
  leader(): Promise<{ readonly agent: string; readonly leftMs: number } | null>
  /** How far a region's clock is from the control plane's, by the midpoint of the quickest of a few round trips to each. */
  clockOffset(region: string): Promise<{ readonly offsetMs: number; readonly uncertainMs: number }>
  close(): Promise<void>
}

const ROUNDS = 5

export function composeLeaseFacts(
  config: Config,
  env: Readonly<Record<string, string | undefined>>,
  regions: readonly RegionConfig[],
): LeaseFacts {
  const secrets = composeSecrets(config, env)
  const facts = createAgentFacts(config, secrets)
  const pulses = regions.map(region => createRegionPulse(region, config, secrets, config.policy.callTimeoutMs))
  return {
    leader: async () => await facts.leader(),
    clockOffset: async name => {
      const pulse = pulses.find(p => p.region === name)
      if (pulse === undefined) throw new Error(`no lease facts of ${name}`)
      const central = await quickest(async () => await facts.clockEpochMs())
      const there = await quickest(async () => (await pulse.readClock()).epochMs)
      return {
        // Both against this process's steady clock, which ran between the two.
        offsetMs: there.epochMs - there.atMs - (central.epochMs - central.atMs),
        uncertainMs: (central.roundTripMs + there.roundTripMs) / 2,
      }
    },
    close: async () => void (await Promise.allSettled([facts.close(), ...pulses.map(p => p.close())])),
  }
}

async function quickest(read: () => Promise<number>): Promise<ClockReading> {
  // The first pays for opening the session.
  await read()
  let best: ClockReading | null = null
  for (let i = 0; i < ROUNDS; i += 1) {
    const before = performance.now()
    const epochMs = await read()
    const after = performance.now()
    if (best === null || after - before < best.roundTripMs) best = { epochMs, atMs: (before + after) / 2, roundTripMs: after - before }
  }
  if (best === null) throw new Error('no clock was read')
  return best
}
