import { HomeregionError } from '../domain/errors.ts'
import { automaticRegions, createAutomaticWatch } from './automatic.ts'
import { createExileWatch } from './exile-watch.ts'
import { createFenceWatch } from './fence-watch.ts'
import { createHeartbeats } from './heartbeat.ts'
import { createLead } from './lead.ts'
import { createLeaseKeeper, leasedRegions, type Renewal } from './lease-keeper.ts'
import { createObserver } from './observer.ts'
import { type AgentParts, reasonOf } from './parts.ts'
import { repeat } from './repeat.ts'

export type AgentHealth = {
  readonly ok: boolean
  readonly leading: boolean
  readonly problems: readonly string[]
}

export interface Agent {
  /** Until the signal. Leases are not given back: whatever is left of them is there for the next agent to renew. */
  run(signal: AbortSignal): Promise<void>
  /** Everything once: each lease, one heartbeat, one look. @throws `superseded` while another agent leads */
  once(): Promise<readonly { readonly region: string; readonly renewal: Renewal }[]>
  health(): AgentHealth
}

// A proof of a fence logs in as each writer; a fence that opened is told within this time.
const FENCES_EVERY_MS = 10_000
const EXILES_EVERY_MS = 1000
const AUTOMATIC_EVERY_MS = 1000
const LEAD_SHARE = 3

export function createAgent(parts: AgentParts): Agent {
  const { config, clock, log } = parts
  const lead = createLead(parts)
  const keepers = leasedRegions(config.regions).map(region => createLeaseKeeper(region, parts))
  const observers = config.regions.map(region => createObserver(region, parts))
  const heartbeats = createHeartbeats(parts)
  const fenceWatch = createFenceWatch(parts)
  const exileWatch = createExileWatch(parts)
  const { automatic } = parts
  const automaticWatches =
    automatic === null ? [] : automaticRegions(config).map(r => ({ region: r.name, watch: createAutomaticWatch(r.name, automatic, parts) }))
  const beating = config.topology === 'shared' ? [] : config.regions.map(r => r.name)
  const others = createFollowerView(parts)
  const whileLeading = (work: () => Promise<void>) => async () => {
    if (lead.leading()) await work()
  }

  /** Another leads, or led a moment ago: it is waited for as long as a lead lasts. */
  const becomeLeader = async (): Promise<void> => {
    const until = clock.monotonicMs() + lead.forMs + 1000
    while (!(await lead.ask())) {
      if (clock.monotonicMs() > until)
        throw new HomeregionError('superseded', {
          fact: 'another agent leads, and renews the leases',
          state: 'Nothing was granted by this one.',
          next: 'homeregion status',
        })
      await clock.sleep(Math.min(500, lead.forMs / LEAD_SHARE))
    }
  }

  return {
    run: async signal => {
      log('started', { agent: parts.agentId, regions: config.regions.map(r => r.name), leases: keepers.map(k => k.region) })
      const each = async (name: string, everyMs: number, work: () => Promise<number | void>) =>
        await repeat(parts, name, everyMs, signal, work)
      await Promise.all([
        each('lead', lead.forMs / LEAD_SHARE, async () => {
          await lead.ask()
        }),
        each('leases', config.agent.observeEveryMs, async () => await others.read()),
        ...keepers.map(keeper =>
          each(`lease of ${keeper.region}`, FIRST_MS, async () => {
            if (!lead.leading()) return FIRST_MS
            await keeper.renew()
            return keeper.nextMs()
          }),
        ),
        ...observers.map(o => each(`look at ${o.region}`, config.agent.observeEveryMs, async () => await o.look())),
        ...beating.map(r =>
          each(
            `heartbeat of ${r}`,
            heartbeats.everyMs,
            whileLeading(async () => await heartbeats.beat(r)),
          ),
        ),
        each(
          'fences',
          FENCES_EVERY_MS,
          whileLeading(async () => await fenceWatch.look()),
        ),
        ...automaticWatches.map(({ region, watch }) =>
          each(
            `automatic failover of ${region}`,
            AUTOMATIC_EVERY_MS,
            whileLeading(async () => await watch.look(signal)),
          ),
        ),
        ...config.regions.map(r =>
          each(
            `exile of ${r.name}`,
            EXILES_EVERY_MS,
            whileLeading(async () => await exileWatch.look(r.name)),
          ),
        ),
      ])
      log('stopped', { agent: parts.agentId })
    },
    once: async () => {
      await becomeLeader()
      const renewals = await Promise.all(keepers.map(async k => ({ region: k.region, renewal: await k.renew() })))
      const rest = await Promise.allSettled([
        ...config.regions.map(async r => await exileWatch.look(r.name)),
        ...beating.map(async r => await heartbeats.beat(r)),
        ...observers.map(async o => await o.look()),
        fenceWatch.look(),
      ])
      for (const r of rest) if (r.status === 'rejected') log('once-failed', { reason: reasonOf(r.reason) })
      return renewals
    },
    health: () => {
      const problems = [
        ...(lead.somebodyLeads() ? [] : ['no agent is known to lead: the control plane did not say so']),
        ...(lead.leading()
          ? keepers
              .filter(k => !k.withheld() && (k.leftMs() ?? 0) < leaseRiskMs(parts, k.region))
              .map(k => `the lease of ${k.region} is not renewed`)
          : others.atRisk()),
      ]
      return { ok: problems.length === 0, leading: lead.leading(), problems }
    },
  }
}

// How soon a new leader grants: what is left of a lease after the takeover must be enough.
const FIRST_MS = 100
const RISK_SHARE = 3

function leaseRiskMs({ config }: AgentParts, region: string): number {
  return (config.regions.find(r => r.name === region)?.lease?.durationMs ?? 0) / RISK_SHARE
}

/** What an agent that does not lead knows of the leases: the control plane's own bound, of which it takes the margin off. */
function createFollowerView({ leases, config, clock, log }: AgentParts): { read(): Promise<void>; atRisk(): readonly string[] } {
  let seen: { readonly atMs: number; readonly risks: readonly string[] } | null = null
  return {
    read: async () => {
      const atMs = clock.monotonicMs()
      const states = await leases.leaseStates()
      const risks = leasedRegions(config.regions).flatMap(region => {
        const state = states.find(s => s.region === region.name)
        if (state !== undefined && (state.withheldBy !== null || state.leftMs - state.marginMs >= state.durationMs / RISK_SHARE)) return []
        return [`the lease of ${region.name} is not renewed`]
      })
      if (risks.length > 0 && seen?.risks.length === 0) log('leases-at-risk', { risks })
      seen = { atMs, risks }
    },
    atRisk: () => seen?.risks ?? [],
  }
}
