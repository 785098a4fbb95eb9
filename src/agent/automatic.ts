import type { Config, RegionConfig } from '../domain/config.ts'
import { raiseAlarm } from './alarm.ts'
import type { AutomaticFailover } from './automatic-failover.ts'
import type { AgentParts } from './parts.ts'

/** What an agent decides about one region: nothing, but for one run a cool-down. */
export interface AutomaticWatch {
  look(signal: AbortSignal): Promise<void>
}

export type AutomaticParts = Pick<AgentParts, 'config' | 'clock' | 'log' | 'metrics' | 'hooks'>

/** Two looks of one process, so that one lost packet or a clock that jumped decides nothing. */
const DARK_LOOKS = 2

/**
 * Regions an agent may fail over by itself: the policy says so, and something other than a person's word proves that they cannot write. Off
 * unless configured.
 */
export function automaticRegions({ policy, regions }: Pick<Config, 'policy' | 'regions'>): readonly RegionConfig[] {
  if (policy.automatic === null) return []
  return regions.filter(r => r.lease?.onAgentOutage === 'stop' || r.fences.some(f => f.kind === 'exec' || f.kind === 'http'))
}

export function createAutomaticWatch(region: string, failover: AutomaticFailover, parts: AutomaticParts): AutomaticWatch {
  const { config, clock, log, metrics } = parts
  let dark = 0
  let said: string | null = null
  let triedAtMs: number | null = null
  const say = (event: string, why: string) => {
    if (said !== `${event} ${why}`) log(event, { region, why })
    said = `${event} ${why}`
  }
  /** Of this process, also when a run never reached the control plane; and of all agents. */
  const coolingMs = async (coolDownMs: number): Promise<number> => {
    const own = triedAtMs === null ? Infinity : clock.monotonicMs() - triedAtMs
    const all = (await failover.sinceLastMs()) ?? Infinity
    return coolDownMs - Math.min(own, all)
  }

  return {
    look: async signal => {
      const { automatic } = config.policy
      if (automatic === null) return
      const seen = await failover.look(region)
      if (seen.kind === 'answers') {
        dark = 0
        said = null
        return
      }
      dark += 1
      if (seen.kind === 'not-mine') return say('automatic-not-mine', seen.why)
      if (dark < DARK_LOOKS) return
      const leftMs = await coolingMs(automatic.coolDownMs)
      if (leftMs > 0)
        return say('automatic-cooling-down', `policy.automatic.coolDown is ${automatic.coolDownMs} ms, one run was tried already`)
      triedAtMs = clock.monotonicMs()
      metrics.count('homeregion_automatic_failovers_total', { region })
      const what = `${seen.keys} keys of ${region} to ${seen.target}, up to ${seen.lossMs} ms of writes may be lost (${seen.staying} keys stay)`
      log('automatic-failover', { region, ...seen })
      // Not waited for: an alarm that hangs must not hold up what it tells of.
      void raiseAlarm(parts, 'automatic-failover', { region, fact: `${region} is dark, and is failed over without a person: ${what}` })
      const end = await failover.run(region, signal)
      log('automatic-failover-ended', { region, ...end })
      const outcome = end.exit === 'done' ? `failed over: ${end.fact}` : `NOT failed over: ${end.fact}`
      await raiseAlarm(parts, 'automatic-failover', {
        region,
        fact: `${region} ${outcome}${end.next === null ? '' : `; next: ${end.next}`}`,
      })
    },
  }
}
