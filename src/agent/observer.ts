import type { RegionConfig } from '../domain/config.ts'
import type { ObservationReport } from '../domain/failover.ts'
import type { RegionObservation } from '../domain/loss.ts'
import { createEventFlow, type EventFlow } from './event-flow.ts'
import { type AgentParts, reasonOf } from './parts.ts'

type Looked = { readonly observation: ObservationReport['observations'][number] | null; readonly contacts: ObservationReport['contacts'] }

/** Looks at one region again and again, and keeps what it saw in the control plane. */
export interface Observer {
  readonly region: string
  look(): Promise<void>
}

/**
 * The database is read before Kafka: an event on its way between the two is counted twice rather than not at all. What could not be
 * looked at is left out, so that the last look stays, with a growing age.
 */
export function createObserver(region: RegionConfig, parts: AgentParts): Observer {
  const { config, clock, controlPlane, metrics, log } = parts
  const others = config.topology === 'shared' ? [] : config.regions.filter(r => r.name !== region.name)
  const flow = createEventFlow()
  const reachedAtMs = new Map<'database' | 'kafka', number>()
  const failing = new Map<string, string>()
  for (const what of ['database', 'kafka'] as const)
    metrics.live('homeregion_contact_age_seconds', { region: region.name, what }, () => {
      const at = reachedAtMs.get(what)
      return at === undefined ? null : (clock.monotonicMs() - at) / 1000
    })

  const tried = async <T>(what: 'database' | 'kafka', ask: () => Promise<T>): Promise<{ readonly answer: T } | null> => {
    const before = clock.monotonicMs()
    try {
      const answer = await ask()
      reachedAtMs.set(what, before)
      if (failing.delete(what)) log('reached-again', { region: region.name, what })
      return { answer }
    } catch (error) {
      const reason = reasonOf(error)
      if (!failing.has(what)) log('not-reached', { region: region.name, what, reason })
      failing.set(what, reason)
      return null
    }
  }

  const look = async (): Promise<Looked> => {
    const backlog = await tried('database', async () => await parts.pulse(region.name).unpublished())
    const reads = await tried('kafka', async () => {
      const stream = parts.stream(region.name)
      const ends = await Promise.all(others.map(async o => ({ group: o, ends: await stream.outboxEnds(o.kafka.inboxGroup) })))
      // A region without others is seen by its brokers alone.
      if (others.length === 0 && config.topology === 'independent') await stream.brokers()
      return ends
    })
    const contacts: ObservationReport['contacts'] = [
      { region: region.name, what: 'database', reached: backlog !== null },
      { region: region.name, what: 'kafka', reached: reads !== null },
    ]
    return { contacts, observation: observed(region.name, flow, clock.monotonicMs(), backlog?.answer ?? null, reads?.answer ?? null) }
  }

  return {
    region: region.name,
    look: async () => {
      const began = clock.monotonicMs()
      const { observation, contacts } = await look()
      show(parts, region.name, observation)
      await controlPlane.recordObservation({
        observer: parts.vantage,
        takenAgoMs: clock.monotonicMs() - began,
        observations: observation === null ? [] : [observation],
        contacts,
      })
    },
  }
}

type Reads = readonly { readonly group: RegionConfig; readonly ends: Parameters<EventFlow['lag']>[1] }[]

function observed(
  region: string,
  flow: EventFlow,
  atMs: number,
  backlog: { readonly count: number; readonly oldestAgeMs: number | null } | null,
  reads: Reads | null,
): Looked['observation'] {
  // A relay that leaves no mark hides what it has not published; so does a database that does not answer.
  if (backlog === null || reads === null) return null
  const first = reads[0]
  if (first !== undefined) flow.saw(atMs, first.ends, backlog)
  const notApplied: Record<string, RegionObservation['notApplied'][string]> = {}
  for (const { group, ends } of reads) {
    const lag = flow.lag(atMs, ends)
    if (lag !== null) notApplied[group.name] = lag
  }
  return {
    region,
    unpublished: backlog.count,
    oldestUnpublishedMs: backlog.oldestAgeMs,
    notApplied,
    highestPerSecond: flow.highestPerSecond(),
  }
}

function show({ metrics }: AgentParts, region: string, observation: Looked['observation']): void {
  const seconds = (ms: number | null | undefined) => (ms === null || ms === undefined ? null : ms / 1000)
  metrics.set('homeregion_outbox_unpublished', { region }, observation?.unpublished ?? null)
  metrics.set('homeregion_outbox_oldest_seconds', { region }, seconds(observation?.oldestUnpublishedMs))
  metrics.set('homeregion_events_highest_per_second', { region }, observation?.highestPerSecond ?? null)
  for (const [at, lag] of Object.entries(observation?.notApplied ?? {}))
    metrics.set('homeregion_events_not_applied', { region, at }, lag.events)
}
