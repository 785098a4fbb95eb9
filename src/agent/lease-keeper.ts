import type { RegionConfig } from '../domain/config.ts'
import { type HomeregionError, isHomeregionError } from '../domain/errors.ts'
import { raiseAlarm } from './alarm.ts'
import { type AgentParts, reasonOf } from './parts.ts'

type Lease = NonNullable<RegionConfig['lease']>
export type LeasedRegion = RegionConfig & { readonly lease: Lease }

export function leasedRegions(regions: readonly RegionConfig[]): readonly LeasedRegion[] {
  return regions.filter((r): r is LeasedRegion => r.lease !== null)
}

export type Renewal =
  | { readonly outcome: 'granted'; readonly generation: number }
  | { readonly outcome: 'withheld' | 'behind' | 'superseded' | 'failed'; readonly reason: string }

/** One region's lease, as this agent keeps it. */
export interface LeaseKeeper {
  readonly region: string
  renew(): Promise<Renewal>
  /** Left by this agent's own clock of what the region was last told; null: this agent told it nothing. */
  leftMs(): number | null
  withheld(): boolean
  /** Until it should be renewed, or tried again. */
  nextMs(): number
}

// Renewed with two thirds left; a try that failed is repeated four times as often.
const RENEWAL_SHARE = 3
const RETRY_SHARE = 12

/**
 * The order is the safety: first the region's clock, then the grant's commit in the control plane, then the region. A crash between any two
 * leaves the control plane's bound later than what the region knows, never the other way round; and what was told late carries an end
 * that was fixed before the grant.
 */
export function createLeaseKeeper(region: LeasedRegion, parts: AgentParts): LeaseKeeper {
  const { leases, clock, log, metrics, agentId, fault } = parts
  const { durationMs, marginMs, onAgentOutage } = region.lease
  const label = { region: region.name }
  let toldAtMs: number | null = null
  let last: Renewal['outcome'] | null = null
  let alarmed: 'at-risk' | 'over' | null = null
  let stopping: boolean | null = null
  let contradicted: string | null = null
  const leftMs = () => (toldAtMs === null ? null : toldAtMs + durationMs - clock.monotonicMs())
  metrics.live('homeregion_lease_left_seconds', label, () => inSeconds(leftMs()))

  const grant = async (compared: boolean): Promise<Renewal> => {
    const pulse = parts.pulse(region.name)
    const before = clock.monotonicMs()
    const reading = await pulse.readClock()
    const { generation, stops: known } = await leases.grantLease(
      ...([region.name, agentId, durationMs, marginMs, reading.generation, compared] as const),
    )
    await fault('agent:lease:granted')
    const { stops } = await pulse.grantLease(generation, reading, durationMs)
    toldAtMs = before
    // Said to the control plane when it is not on record: what was lost on the way is said with the next grant.
    if (stops !== known) await leases.noteLeaseStops(region.name, agentId, stops)
    watch(stops)
    return { outcome: 'granted', generation }
  }

  /**
   * It may have forgotten that the region's keys were taken: the others know. Where commits were lost for certain, one that does not answer may know
   * anything. Where another server has taken over it does not count: that happens when a region is dark, and would stop all the healthy ones.
   */
  const compareFirst = async ({ text, fields }: HomeregionError): Promise<Renewal> => {
    const { contradicted: known, silent } = await parts.compareOwnership(region.name)
    const unanswered = silent.length > 0 && fields['lost'] !== false ? `${silent.join(', ')} does not answer` : null
    const found = known ?? unanswered
    const changed = found !== contradicted
    contradicted = found
    if (found === null) {
      log('lease-compared', { region: region.name, reason: text.fact, silent })
      return await grant(true)
    }
    const fact = `${text.fact}. The lease of ${region.name} is not granted until every other region answers and none contradicts the control plane: ${found}`
    if (changed) void raiseAlarm(parts, 'control-plane-behind', { region: region.name, fact })
    return { outcome: 'behind', reason: found }
  }

  const attempt = async (): Promise<Renewal> => {
    try {
      return await grant(false).catch(async (error: unknown) => {
        if (isHomeregionError(error, 'control-plane-behind')) return await compareFirst(error)
        throw error
      })
    } catch (error) {
      if (isHomeregionError(error, 'lease-withheld')) return { outcome: 'withheld', reason: error.text.fact }
      if (isHomeregionError(error, 'superseded')) return { outcome: 'superseded', reason: error.text.fact }
      return { outcome: 'failed', reason: isHomeregionError(error) ? error.text.fact : reasonOf(error) }
    }
  }

  const watch = (stops: boolean): void => {
    if (stops === stopping || onAgentOutage !== 'stop') return
    stopping = stops
    if (stops) return log('lease-stops', { region: region.name })
    const fact = `the boundary of ${region.name} does not stop writes at the lease's end, so that its being over proves nothing: homeregion init`
    void raiseAlarm(parts, 'lease-not-enforced', { region: region.name, fact })
  }

  /** Of a lease that this agent told nothing of yet, the control plane knows: another agent may have renewed it a moment ago. */
  const leftForCertain = async (): Promise<number> => {
    const told = leftMs()
    if (told !== null) return told
    const states = await leases.leaseStates().catch(() => null)
    const state = states?.find(s => s.region === region.name)
    return states === null ? durationMs : state === undefined ? 0 : state.leftMs - state.marginMs
  }

  const judge = async (renewal: Renewal): Promise<void> => {
    const left = renewal.outcome === 'failed' ? await leftForCertain() : durationMs
    const late = left < durationMs / RENEWAL_SHARE
    metrics.set('homeregion_lease_at_risk', label, late ? 1 : 0)
    if (!late) {
      alarmed = null
      return
    }
    const now = left <= 0 ? 'over' : 'at-risk'
    if (alarmed === now) return
    alarmed = now
    const then =
      onAgentOutage === 'stop' ? 'its boundary refuses writes from the end on' : 'it goes on writing, and its lease proves nothing'
    const fact =
      now === 'over'
        ? `the lease of ${region.name} is over and was not renewed (${then}): ${reasonOfRenewal(renewal)}`
        : `the lease of ${region.name} ends in ${Math.round(left)} ms and was not renewed (${then}): ${reasonOfRenewal(renewal)}`
    // Not waited for: an alarm that hangs must not keep the lease from being renewed.
    void raiseAlarm(parts, now === 'over' ? 'lease-over' : 'lease-at-risk', { region: region.name, fact })
  }

  return {
    region: region.name,
    leftMs,
    withheld: () => last === 'withheld',
    nextMs: () => durationMs / (last === 'granted' ? RENEWAL_SHARE : RETRY_SHARE),
    renew: async () => {
      const renewal = await attempt()
      const changed = renewal.outcome !== last
      last = renewal.outcome
      metrics.set('homeregion_lease_withheld', label, renewal.outcome === 'withheld' ? 1 : 0)
      if (renewal.outcome === 'granted') metrics.count('homeregion_lease_grants_total', label)
      if (renewal.outcome === 'failed') metrics.count('homeregion_lease_failures_total', label)
      if (changed)
        log(`lease-${renewal.outcome}`, {
          region: region.name,
          ...(renewal.outcome === 'granted' ? { generation: renewal.generation, durationMs } : { reason: renewal.reason }),
        })
      await judge(renewal)
      return renewal
    },
  }
}

function reasonOfRenewal(renewal: Renewal): string {
  return renewal.outcome === 'granted' ? 'granted' : renewal.reason
}

function inSeconds(ms: number | null): number | null {
  return ms === null ? null : ms / 1000
}
