import type { AgentParts } from './parts.ts'
import { reasonOf } from './parts.ts'

/** Signs of life through the outboxes: what arrives at another region's inbox went the way that all events go. */
export interface Heartbeats {
  /** One through this region's outbox; and which of the earlier ones the other regions have by now. */
  beat(region: string): Promise<void>
  /** How many heartbeats of a region are looked for at the others: those that nobody has seen yet, and the newest that was. */
  readonly everyMs: number
}

// The inbox's row is kept by the service: a beat more often than this would tell nothing sooner and fill tables.
const EVERY_MS = 2000
const WAITED_FOR = 30

type Beat = { readonly id: string; readonly atMs: number }

export function createHeartbeats(parts: AgentParts): Heartbeats {
  const { config, clock, metrics, controlPlane, log } = parts
  const sent = new Map<string, readonly Beat[]>()
  const failing = new Set<string>()
  const tried = async (what: string, work: () => Promise<void>) => {
    try {
      await work()
      if (failing.delete(what)) log('heartbeat-again', { what })
    } catch (error) {
      if (!failing.has(what)) log('heartbeat-failed', { what, reason: reasonOf(error) })
      failing.add(what)
    }
  }

  const lookAt = async (region: string, at: string, beats: readonly Beat[]): Promise<void> => {
    const seen = new Set(await parts.pulse(at).inboxHas(beats.map(b => b.id)))
    const newest = beats.findLast(b => seen.has(b.id))
    if (newest === undefined) return
    metrics.live('homeregion_heartbeat_age_seconds', { region, at }, () => (clock.monotonicMs() - newest.atMs) / 1000)
    // The region was alive when it wrote it, not when it was found.
    await controlPlane.recordObservation({
      observer: `${at} inbox`,
      takenAgoMs: clock.monotonicMs() - newest.atMs,
      observations: [],
      contacts: [{ region, what: 'heartbeat', reached: true }],
    })
  }

  return {
    everyMs: Math.max(EVERY_MS, config.agent.observeEveryMs),
    beat: async region => {
      const beat = { id: parts.newId(), atMs: clock.monotonicMs() }
      // Looked for also when the answer was lost: it may be on its way.
      const beats = [...(sent.get(region) ?? []), beat].slice(-WAITED_FOR)
      sent.set(region, beats)
      const others = config.regions.filter(r => r.name !== region)
      await Promise.all([
        tried(`${region} outbox`, async () => await parts.pulse(region).heartbeat(beat.id)),
        ...others.map(async o => await tried(`${region} at ${o.name}`, async () => await lookAt(region, o.name, beats))),
      ])
    },
  }
}
