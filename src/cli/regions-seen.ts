import type { Config } from '../domain/config.ts'
import type { LeaseState } from '../domain/failover.ts'
import type { Sight } from '../domain/loss.ts'
import { newestContact, toldOf } from '../engine/vantage.ts'

/**
 * How the agents see one region, by the control plane's clock. `missed`: not reached by more looks than one, and not for long enough to be dark;
 * `not-looked`: no agent has reached anything for so long, so that either none looks or nothing answers it; `never-looked`: there was no agent.
 */
export type RegionSeen = {
  readonly region: string
  readonly state: 'reached' | 'missed' | 'dark' | 'not-looked' | 'never-looked'
  /** The newest sign that its database is there. */
  readonly last: Sight | null
  /** Agents that look and have not reached its database, though others have. */
  readonly blind: readonly Sight[]
  /** The newest contact with its Kafka where no agent that looks has reached it for long enough; else null. */
  readonly kafka: Sight | null
}

/** A look that fails is made again at once, and one that hangs ends with its call. */
const LOOKS_MISSED = 5
const MISSED_MS = 5_000

export function regionsSeen(
  { regions, policy, agent }: Pick<Config, 'regions' | 'policy' | 'agent'>,
  told: readonly Sight[],
  leases: readonly LeaseState[],
): readonly RegionSeen[] {
  const { darkAfterMs } = policy
  const young = ({ lastContactAgeMs: age }: Sight) => age !== null && age < darkAfterMs
  const looks = told.filter(isLook)
  // An agent that reached something lately looks; of one that reached nothing nobody can tell.
  const lookers = new Set(looks.filter(young).map(s => s.vantage))
  const missedMs = Math.min(darkAfterMs, Math.max(MISSED_MS, LOOKS_MISSED * agent.observeEveryMs))
  return regions.map(({ name: region }) => {
    const last = newestContact(toldOf(region, told, leases))
    const own = looks.filter(s => s.region === region && lookers.has(s.vantage))
    const isYoung = last !== null && young(last)
    const blind = isYoung ? own.filter(s => s.what === 'database' && !young(s)) : []
    const kafka = own.some(s => s.what === 'kafka' && young(s)) ? null : newest(own.filter(s => s.what === 'kafka'))
    const state =
      looks.length === 0
        ? 'never-looked'
        : !isYoung
          ? lookers.size === 0
            ? 'not-looked'
            : 'dark'
          : (last.lastContactAgeMs ?? 0) < missedMs
            ? 'reached'
            : 'missed'
    return { region, state, last, blind, kafka: isYoung ? kafka : null }
  })
}

/** By an agent itself; a lease and a heartbeat are what it hears of. */
function isLook({ what }: Sight): boolean {
  return what === 'database' || what === 'kafka'
}

function newest(sights: readonly Sight[]): Sight | null {
  return sights.toSorted((a, b) => (a.lastContactAgeMs ?? Infinity) - (b.lastContactAgeMs ?? Infinity))[0] ?? null
}
