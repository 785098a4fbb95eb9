import type { Config, RegionConfig } from '../domain/config.ts'
import { formatMs, showDuration } from '../domain/duration.ts'
import { isHomeregionError } from '../domain/errors.ts'
import type { LeaseFacts } from './compose-lease-facts.ts'
import type { CliContext, World } from './context.ts'
import type { Finding } from './finding.ts'

/** Who renews the leases, and what could let a write be committed after the end of one. Nothing where no region has a lease. */
export async function leaseFindings(context: CliContext, config: Config, world: World): Promise<readonly Finding[]> {
  const regions = config.regions.filter(r => r.lease !== null)
  if (regions.length === 0) return []
  const { composeLeaseFacts } = await import('./compose-lease-facts.ts')
  const facts = composeLeaseFacts(config, context.env, regions)
  try {
    const found = await Promise.all([
      looked('agents', 'who leads', async () => await leaderFinding(facts)),
      ...regions.flatMap(region => [
        looked(`${region.name} lease`, 'clock', async () => await clockFinding(region, facts)),
        looked(`${region.name} lease`, 'granted', async () => await grantFinding(region, world)),
        looked(`${region.name} lease`, 'prepared transactions', async () => await preparedFinding(region, world)),
      ]),
    ])
    return found
  } finally {
    await facts.close()
  }
}

async function leaderFinding(facts: LeaseFacts): Promise<Omit<Finding, 'place' | 'check'>> {
  const leader = await facts.leader()
  if (leader === null) return { verdict: 'fail', detail: 'no agent ever led: nobody grants leases (homeregion agent)' }
  if (leader.leftMs <= 0) return { verdict: 'fail', detail: `nobody leads since ${formatMs(-leader.leftMs)}; the last was ${leader.agent}` }
  return { verdict: 'pass', detail: leader.agent }
}

/** A lease ends by the region's own clock, so that no offset matters; one as large as the margin says that nobody keeps the clock. */
async function clockFinding(region: RegionConfig, facts: LeaseFacts): Promise<Omit<Finding, 'place' | 'check'>> {
  const marginMs = region.lease?.marginMs ?? 0
  const { offsetMs, uncertainMs } = await facts.clockOffset(region.name)
  const measured = `${offsetMs < 0 ? '-' : '+'}${formatMs(Math.abs(offsetMs))} (give or take ${formatMs(uncertainMs)}) against the control plane's, margin ${showDuration(marginMs)}`
  if (Math.abs(offsetMs) - uncertainMs > marginMs)
    return { verdict: 'fail', detail: `${measured}: a clock that is set by as much ends a lease late; keep both by NTP` }
  return { verdict: 'pass', detail: measured }
}

async function grantFinding(region: RegionConfig, world: World): Promise<Omit<Finding, 'place' | 'check'>> {
  const { lease } = await world.region(region.name).facts()
  const then = region.lease?.onAgentOutage === 'stop' ? 'it refuses writes' : 'it writes on without one'
  if (lease === null) return { verdict: 'fail', detail: `never granted there: ${then} (homeregion agent)` }
  if (lease.leftMs <= 0) return { verdict: 'fail', detail: `over for ${formatMs(-lease.leftMs)} by its own clock: ${then}` }
  return { verdict: 'pass', detail: `${formatMs(lease.leftMs)} left by its own clock, grant ${lease.generation}` }
}

async function preparedFinding(region: RegionConfig, world: World): Promise<Omit<Finding, 'place' | 'check'>> {
  const { maxPreparedTransactions } = await world.region(region.name).facts()
  if (region.lease?.onAgentOutage !== 'stop' || maxPreparedTransactions === 0)
    return { verdict: 'pass', detail: 'cannot outlive the lease' }
  return {
    verdict: 'fail',
    detail: `max_prepared_transactions is ${maxPreparedTransactions}: a transaction whose constraints were checked early can be prepared, and committed after the end; set it to 0`,
  }
}

async function looked(place: string, check: string, look: () => Promise<Omit<Finding, 'place' | 'check'>>): Promise<Finding> {
  try {
    return { place, check, ...(await look()) }
  } catch (error) {
    const detail = isHomeregionError(error) ? error.text.fact : error instanceof Error ? error.message : String(error)
    return { place, check, verdict: 'unknown', detail }
  }
}
