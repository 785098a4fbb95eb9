import { createHash } from 'node:crypto'
import type { Config, Rpo } from './config.ts'
import { formatMs, showDuration } from './duration.ts'
import { showKey } from './key.ts'
import { keyPattern } from './key-pattern.ts'
import { byCodeUnit } from './order.ts'

/** One look of an agent at a region: what of its committed writes the others do not have yet, and how fast it writes. */
export type RegionObservation = {
  readonly region: string
  /** The agent that looked. */
  readonly observer: string
  /** How old the look is, by the control plane's clock; counted from before it began. */
  readonly ageMs: number
  /** Committed events that had not left the outbox. */
  readonly unpublished: number
  /** Age of the oldest of them by the region's own clock; null when there was none. */
  readonly oldestUnpublishedMs: number | null
  /** By other region: events that had left the outbox and were not applied there, and the age of the oldest; null where there was none. */
  readonly notApplied: Readonly<Record<string, { readonly events: number; readonly oldestMs: number | null }>>
  /** Most events committed in any one second of the observer's window; null where it has not watched for long enough. */
  readonly highestPerSecond: number | null
}

export const SIGHTS = ['database', 'kafka', 'lease', 'heartbeat'] as const

/** Who has seen what of a region, and how long ago. */
export type Sight = {
  readonly region: string
  /** This host, an agent, another region's agent. */
  readonly vantage: string
  readonly what: (typeof SIGHTS)[number]
  /** null: never. By the control plane's clock. */
  readonly lastContactAgeMs: number | null
}

/** `null`: nobody can say. */
export type UpperBound = { readonly writes: number | null; readonly ms: number | null }

export type LastApplied = { readonly version: number; readonly ageMs: number }

export type KeyEstimate = {
  readonly key: string
  readonly source: string
  readonly target: string
  readonly epoch: number
  readonly rpo: Rpo
  /** What the target has applied of the key; null when it has nothing, or could not be asked. */
  readonly lastApplied: LastApplied | null
  /** Writes known to be missing at the target, since their events stand in a Kafka that still answers; null: nobody could count them. */
  readonly recoverable: number | null
  /** Writes that nobody outside the source can see: at most so many, of at most so long. Any of the region's may be this key's. */
  readonly unknown: UpperBound
}

/** Why the policy keeps a key where it is: nothing may be lost of it, too much may be, or nobody knows how much. */
export type BlockedKey = { readonly key: string; readonly rpo: Rpo; readonly why: 'never' | 'over' | 'unknown' }

export type LossEstimate = {
  readonly source: string
  readonly target: string
  /** The look it stands on; null: there is none. */
  readonly observation: RegionObservation | null
  readonly sights: readonly Sight[]
  /** Since when no write can have been committed at the source, because a fence from outside holds; null: none does yet. */
  readonly stoppedAgeMs: number | null
  /** Ordered by key. */
  readonly keys: readonly KeyEstimate[]
  /** Of the region: not the sum over its keys, since each unseen write is counted once. */
  readonly totals: { readonly keys: number; readonly recoverable: number | null; readonly unknown: UpperBound }
  /** Keys that stay where they are, whatever is acknowledged. */
  readonly blocked: readonly BlockedKey[]
  /** Over the keys that would move, for acknowledgements. */
  readonly keysSha256: string
  /** Over the canonical text of all of the above. */
  readonly sha256: string
}

export type LossInput = {
  readonly source: string
  readonly target: string
  readonly keys: readonly { readonly key: string; readonly epoch: number }[]
  readonly observations: readonly RegionObservation[]
  readonly sights: readonly Sight[]
  readonly stoppedAgeMs: number | null
  readonly lastApplied: ReadonlyMap<string, LastApplied>
  /** By key: events that stand in a Kafka that answers and are not applied at the target; null: it did not say. */
  readonly recoverable: ReadonlyMap<string, number> | null
  readonly loss: Config['policy']['loss']
}

/**
 * How somebody owned the loss. `boundMs` is the most that is accepted; what is lost beyond it is not acknowledged, so a later, worse look
 * makes it too small.
 */
export type Acknowledgement =
  /** At a terminal: the bound that was shown was typed back. */
  | { readonly kind: 'typed'; readonly boundMs: number }
  | { readonly kind: 'bound'; readonly boundMs: number }
  /** Whatever it takes, in so many words; the only one that covers an unknown bound. */
  | { readonly kind: 'any' }
  /** Of `plan failover`, by its hash. Whether it is in time is judged when the run uses it, and by the control plane. */
  | { readonly kind: 'token'; readonly hash: string; readonly boundMs: number | 'any'; readonly keysSha256: string }

/** What was missing at the last look and what can have been written since, for each key and in all. Pure. */
export function estimateLoss(input: LossInput): LossEstimate {
  const { source, target, stoppedAgeMs } = input
  // The newest look: each is an upper bound of its own, and the newest is the one whose silence is shortest.
  const observation = input.observations
    .filter(o => o.region === source)
    .reduce<RegionObservation | null>((best, o) => (best === null || o.ageMs < best.ageMs ? o : best), null)
  const unknown = upperBound(observation, input)
  const keys = input.keys
    .toSorted((a, b) => byCodeUnit(a.key, b.key))
    // Written out, not spread: of a hundred thousand keys that takes a fifth of the time.
    .map(({ key, epoch }) => ({
      key,
      source,
      target,
      epoch,
      rpo: rpoOf(key, input.loss),
      lastApplied: input.lastApplied.get(key) ?? null,
      recoverable: input.recoverable === null ? null : (input.recoverable.get(key) ?? 0),
      unknown,
    }))
  const recoverable = input.recoverable === null ? null : keys.reduce((sum, k) => sum + (k.recoverable ?? 0), 0)
  const totals = { keys: keys.length, recoverable, unknown }
  const blocked = keys.flatMap(({ key, rpo }) => {
    const why = blockedBy(rpo, unknown.ms)
    return why === null ? [] : [{ key, rpo, why }]
  })
  const staying = new Set(blocked.map(b => b.key))
  const keysSha256 = hashOfKeys(keys.map(k => k.key).filter(key => !staying.has(key)))
  const estimate = { source, target, observation, sights: input.sights, stoppedAgeMs, keys, totals, blocked, keysSha256 }
  return { ...estimate, sha256: sha256(canonicalText(estimate)) }
}

function upperBound(observation: RegionObservation | null, { observations, source, target, stoppedAgeMs }: LossInput): UpperBound {
  if (observation === null) return { writes: null, ms: null }
  const applied = observation.notApplied[target]
  // Nobody asked the target: what it lacks of the published events is not known.
  if (applied === undefined) return { writes: null, ms: null }
  const silentMs = Math.max(0, observation.ageMs - (stoppedAgeMs ?? 0))
  const lags = [lagMs(observation.unpublished, observation.oldestUnpublishedMs), lagMs(applied.events, applied.oldestMs)]
  const ms = lags.includes(null) ? null : silentMs + Math.max(...lags.map(lag => lag ?? 0))
  const rates = observations.filter(o => o.region === source).flatMap(o => (o.highestPerSecond === null ? [] : [o.highestPerSecond]))
  const written = rates.length === 0 ? null : Math.ceil((Math.max(...rates) * silentMs) / 1000)
  return { ms, writes: written === null ? null : observation.unpublished + applied.events + written }
}

/** Events without the age of the oldest have an unknown lag, not none. */
function lagMs(events: number, oldestMs: number | null): number | null {
  return oldestMs ?? (events > 0 ? null : 0)
}

function blockedBy(rpo: Rpo, ms: number | null): BlockedKey['why'] | null {
  if (rpo === 'any') return null
  if (rpo === 'never') return 'never'
  if (ms === null) return 'unknown'
  return ms > rpo.atMostMs ? 'over' : null
}

/** What the policy lets a key lose: the first pattern that matches; `never` where none does. */
export function rpoOf(key: string, loss: Config['policy']['loss']): Rpo {
  return loss.find(({ keys }) => keyPattern(keys, key))?.rpo ?? 'never'
}

/** Why the acknowledgement does not cover the estimate; null when it does. Keys that the policy blocks are not part of the question. */
export function acknowledgementProblem(ack: Acknowledgement, estimate: LossEstimate): string | null {
  if (estimate.blocked.length >= estimate.keys.length) return 'the policy lets none of the keys move'
  if (ack.kind === 'token' && ack.keysSha256 !== estimate.keysSha256) return 'the token is for other keys'
  const bound = ack.kind === 'any' ? 'any' : ack.boundMs
  if (bound === 'any') return null
  const { ms } = estimate.totals.unknown
  if (ms === null) return 'nobody knows how much may be lost; only "any" covers that'
  // Not `ms > bound`: a bound that is no number covers nothing.
  return ms <= bound ? null : `up to ${showBound(ms)} may be lost, the acknowledgement covers ${showDuration(bound)}`
}

/** A bound as it is compared and typed: in seconds, and never shown smaller than it is. */
export function showBound(ms: number): string {
  return `${(Math.ceil(ms / 100) / 10).toFixed(1)} s`
}

export function acknowledges(ack: Acknowledgement, estimate: LossEstimate): boolean {
  return acknowledgementProblem(ack, estimate) === null
}

/** One hash for one set of keys, in whatever order. */
export function hashOfKeys(keys: readonly string[]): string {
  return sha256(JSON.stringify([...new Set(keys)].toSorted(byCodeUnit)))
}

/** One line on why a key stays. */
export function describeBlocked({ key, rpo, why }: BlockedKey): string {
  if (why === 'never' || typeof rpo === 'string') return `${showKey(key)}: its policy is never`
  const limit = formatMs(rpo.atMostMs)
  return `${showKey(key)}: its policy is at most ${limit}, ${why === 'over' ? 'and more may be lost' : 'and nobody knows how much may be lost'}`
}

/** Written out field by field, so that the same facts give the same text whatever made them; a key is one short list, since there may be many. */
function canonicalText({ source, target, observation, sights, stoppedAgeMs, keys, totals, blocked }: Omit<LossEstimate, 'sha256'>): string {
  const look = observation && [
    ...[observation.region, observation.observer, observation.ageMs, observation.unpublished, observation.oldestUnpublishedMs],
    observation.highestPerSecond,
    Object.entries(observation.notApplied)
      .toSorted(([a], [b]) => byCodeUnit(a, b))
      .map(([region, lag]) => [region, lag.events, lag.oldestMs]),
  ]
  return JSON.stringify([
    ...[source, target, stoppedAgeMs, look, sights.map(s => [s.region, s.vantage, s.what, s.lastContactAgeMs])],
    ...[totals.keys, totals.recoverable, totals.unknown.writes, totals.unknown.ms],
    keys.map(k => [k.key, k.epoch, showRpo(k.rpo), k.lastApplied?.version ?? null, k.lastApplied?.ageMs ?? null, k.recoverable]),
    blocked.map(b => [b.key, b.why]),
  ])
}

function showRpo(rpo: Rpo): string | number {
  return typeof rpo === 'string' ? rpo : rpo.atMostMs
}

function sha256(text: string): string {
  return createHash('sha256').update(text, 'utf8').digest('hex')
}
