import type { Acknowledged } from './acknowledged.ts'
import { grouped } from './grouped.ts'

/** One event as a region's outbox holds it. */
export type RecordedEvent = {
  readonly eventId: string
  readonly key: string
  readonly aggregateId: string
  readonly version: number
  readonly epoch: number
  /** Null for a barrier. */
  readonly idempotencyKey: string | null
}

/** What one region's database holds, read after the load has stopped and the inboxes have caught up. */
export type RegionHistory = {
  readonly region: string
  /** Events this region wrote itself. */
  readonly outbox: readonly RecordedEvent[]
  /** Ids of events it applied from elsewhere. */
  readonly inbox: ReadonlySet<string>
  /** Highest version per `key aggregate`. */
  readonly versions: ReadonlyMap<string, number>
  /** `key id` of its idempotency records. */
  readonly idempotency: ReadonlySet<string>
}

/** Log of the control plane: each activation of a key. */
export type Activation = { readonly key: string; readonly epoch: number; readonly homeRegion: string }

/** Each list holds one line per violation; all empty means that the invariants held. */
export type Findings = {
  readonly acknowledged: number
  /** Acknowledged writes that their key's home region does not hold. */
  readonly lost: readonly string[]
  /** Idempotency keys committed more than once. */
  readonly doubled: readonly string[]
  /** Versions of an aggregate with a gap, a repeat, or against the order of epochs. */
  readonly versionGaps: readonly string[]
  /** Epochs of a key under which two regions wrote, or that were written after a later one had begun. */
  readonly overlaps: readonly string[]
  /** Activations whose epochs do not rise by one, and writes by a region that was not home under that epoch. */
  readonly epochJumps: readonly string[]
}

export function nameOf(key: string, id: string): string {
  return JSON.stringify([key, id])
}

/** Pure: the same records give the same findings. `log` is the control plane's, where there is one. */
export function verify(acks: readonly Acknowledged[], databases: readonly RegionHistory[], log: readonly Activation[] = []): Findings {
  const written = databases.flatMap(d => d.outbox.map(event => ({ event, region: d.region })))
  return {
    acknowledged: acks.length,
    lost: lostWrites(acks, written, databases, homes(written, log)),
    doubled: doubled(written),
    versionGaps: versionGaps(written),
    overlaps: [...sharedEpochs(written), ...lateWrites(acks)],
    epochJumps: epochJumps(log, written),
  }
}

export function holds(findings: Findings): boolean {
  const { lost, doubled, versionGaps, overlaps, epochJumps } = findings
  return [lost, doubled, versionGaps, overlaps, epochJumps].every(list => list.length === 0)
}

type Written = { readonly event: RecordedEvent; readonly region: string }

/** Home of each key at the end: by the log, else the region that wrote under the highest epoch. */
function homes(written: readonly Written[], log: readonly Activation[]): ReadonlyMap<string, string> {
  const best = new Map<string, { epoch: number; region: string }>()
  const claims = [
    ...written.filter(w => w.event.idempotencyKey !== null).map(w => ({ key: w.event.key, epoch: w.event.epoch, region: w.region })),
    ...log.map(a => ({ key: a.key, epoch: a.epoch, region: a.homeRegion })),
  ]
  for (const { key, epoch, region } of claims) if (epoch >= (best.get(key)?.epoch ?? 0)) best.set(key, { epoch, region })
  return new Map([...best].map(([key, { region }]) => [key, region]))
}

function lostWrites(
  acks: readonly Acknowledged[],
  written: readonly Written[],
  databases: readonly RegionHistory[],
  homeOf: ReadonlyMap<string, string>,
): readonly string[] {
  const commits = new Map(written.map(w => [nameOf(w.event.key, w.event.idempotencyKey ?? ''), w]))
  return acks.flatMap(ack => {
    const home = databases.find(d => d.region === homeOf.get(ack.key))
    const problem = missing(ack, commits.get(nameOf(ack.key, ack.idempotencyKey)), home)
    return problem === null ? [] : [`${ack.key} ${ack.accountId} version ${ack.version} (${ack.idempotencyKey}): ${problem}`]
  })
}

/** What of an acknowledged write its key's home does not hold, or null. */
function missing(ack: Acknowledged, found: Written | undefined, home: RegionHistory | undefined): string | null {
  if (found === undefined) return 'no region has written it'
  const { event, region } = found
  if (event.version !== ack.version || event.epoch !== ack.epoch || region !== ack.region || event.aggregateId !== ack.accountId)
    return `acknowledged by ${ack.region} under epoch ${ack.epoch}, written by ${region} as version ${event.version} under epoch ${event.epoch}`
  if (home === undefined) return 'its key has no home'
  const parts = [
    home.region === region || home.inbox.has(event.eventId) ? null : 'the event was not applied',
    (home.versions.get(nameOf(ack.key, ack.accountId)) ?? 0) >= ack.version ? null : 'the row has a lower version',
    home.idempotency.has(nameOf(ack.key, ack.idempotencyKey)) ? null : 'its idempotency record is missing',
  ].filter(part => part !== null)
  return parts.length === 0 ? null : `at ${home.region} ${parts.join(', ')}`
}

function doubled(written: readonly Written[]): readonly string[] {
  const commits = grouped(
    written.filter(w => w.event.idempotencyKey !== null),
    w => nameOf(w.event.key, w.event.idempotencyKey ?? ''),
  )
  return [...commits].flatMap(([name, all]) =>
    all.length === 1
      ? []
      : [`${name}: committed ${all.length} times, by ${all.map(w => `${w.region} at epoch ${w.event.epoch}`).join(' and ')}`],
  )
}

function versionGaps(written: readonly Written[]): readonly string[] {
  const aggregates = grouped(
    written.filter(w => w.event.idempotencyKey !== null),
    w => nameOf(w.event.key, w.event.aggregateId),
  )
  return [...aggregates].flatMap(([name, all]) => {
    const ordered = [...all].sort((a, b) => a.event.version - b.event.version)
    return ordered.flatMap(({ event }, i) => {
      const before = ordered[i - 1]?.event
      const expected = (before?.version ?? 0) + 1
      if (event.version !== expected) return [`${name}: version ${event.version} where ${expected} was due`]
      return before !== undefined && event.epoch < before.epoch
        ? [`${name}: version ${event.version} under epoch ${event.epoch}, after epoch ${before.epoch}`]
        : []
    })
  })
}

function sharedEpochs(written: readonly Written[]): readonly string[] {
  const epochs = grouped(written, w => nameOf(w.event.key, `epoch ${w.event.epoch}`))
  return [...epochs].flatMap(([name, all]) => {
    const regions = [...new Set(all.map(w => w.region))]
    return regions.length === 1 ? [] : [`${name}: written by ${regions.join(' and ')}`]
  })
}

/** A write that was sent when a later epoch had already acknowledged one, and committed under the older epoch all the same. */
function lateWrites(acks: readonly Acknowledged[]): readonly string[] {
  return [
    ...grouped(
      acks.filter(a => !a.replayed),
      a => a.key,
    ),
  ].flatMap(([key, all]) => {
    const begins = new Map<number, number>()
    for (const a of all) begins.set(a.epoch, Math.min(begins.get(a.epoch) ?? Number.POSITIVE_INFINITY, a.ackedAtMs))
    return all.flatMap(a => {
      const later = [...begins].find(([epoch, at]) => epoch > a.epoch && at < a.lastSentAtMs)
      return later === undefined
        ? []
        : [`${key}: ${a.idempotencyKey} was sent and committed under epoch ${a.epoch} after epoch ${later[0]} had begun`]
    })
  })
}

function epochJumps(log: readonly Activation[], written: readonly Written[]): readonly string[] {
  const byKey = grouped(log, a => a.key)
  const jumps = [...byKey].flatMap(([key, all]) =>
    all.flatMap((a, i) => {
      const expected = (all[i - 1]?.epoch ?? a.epoch - 1) + 1
      return a.epoch === expected ? [] : [`${key}: epoch ${a.epoch} where ${expected} was due`]
    }),
  )
  const foreign = written.flatMap(({ event, region }) => {
    const active = byKey.get(event.key)
    if (active === undefined || active.some(a => a.epoch === event.epoch && a.homeRegion === region)) return []
    return [`${event.key}: ${region} wrote version ${event.version} under epoch ${event.epoch}, under which it was not home`]
  })
  return [...jumps, ...foreign]
}
