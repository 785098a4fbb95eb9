import { HomeregionError } from '../domain/errors.ts'
import type { Exile, ReconcileFinding } from '../domain/failover.ts'
import type { ControlPlane, RegionDatabase } from '../domain/ports.ts'
import type { LostKey, Recovery } from '../domain/recovery.ts'

/** Keys in one look, or in one transaction that brings them level. */
export const BATCH = 100
/** A region has one open exile, and few runs took its keys; more than this were never made. */
const FAILOVERS = 10_000

/** A key that a run took from the region, and where its home is now. */
export type Taken = LostKey & { readonly runId: string; readonly home: string; readonly homeEpoch: number }

/** Every key that the runs of the exile took, each once, under the epoch that was ended last. Ordered by key. */
export async function takenKeys(controlPlane: ControlPlane, exile: Exile): Promise<readonly Taken[]> {
  const failovers = (await controlPlane.forcedFailovers({ source: exile.region, limit: FAILOVERS })).filter(f =>
    exile.runIds.includes(f.runId),
  )
  const ended = new Map<string, LostKey & { runId: string }>()
  // Newest first: an older run's word on a key does not replace a newer one's.
  for (const { runId, keys } of failovers) for (const { key, epoch } of keys) if (!ended.has(key)) ended.set(key, { key, epoch, runId })
  const names = [...ended.keys()].toSorted((a, b) => (a < b ? -1 : 1))
  const taken: Taken[] = []
  for (const batch of batches(names, 1_000)) {
    const records = new Map((await controlPlane.ownership(batch)).map(r => [r.key, r]))
    for (const name of batch) {
      const [key, record] = [ended.get(name), records.get(name)]
      if (key === undefined || record === undefined || record.homeRegion === exile.region) continue
      taken.push({ ...key, home: record.homeRegion, homeEpoch: record.epoch })
    }
  }
  return taken
}

/** Keys with one home, in lists that one call can take. */
export function byHome(keys: readonly Taken[]): readonly { readonly home: string; readonly keys: readonly Taken[] }[] {
  const homes = [...new Set(keys.map(k => k.home))]
  return homes.flatMap(home =>
    batches(
      keys.filter(k => k.home === home),
      BATCH,
    ).map(batch => ({ home, keys: batch })),
  )
}

export type ListParts = {
  readonly controlPlane: ControlPlane
  readonly region: (name: string) => RegionDatabase
  readonly recovery: Recovery
}

/** Comparing may take long, and is given its time; whether both sides answer at all is known after one call. @throws `region-unreachable` */
export async function requireAnswers(region: ListParts['region'], source: string, taken: readonly Taken[]): Promise<void> {
  await Promise.all([...new Set([source, ...taken.map(k => k.home)])].map(async name => await region(name).conditions()))
}

/**
 * Finds what exists at the region only and puts it on record, run by run; what is there already stays as it is. What was decided holds for the
 * same event in the quarantine of the new home as well, whenever it arrived there. Returns how many writes were found.
 */
export async function listLost(
  { controlPlane, region, recovery }: ListParts,
  source: string,
  taken: readonly Taken[],
  only: (finding: ReconcileFinding) => boolean = () => true,
): Promise<number> {
  await requireAnswers(region, source, taken)
  const runOf = new Map(taken.map(k => [k.key, k.runId]))
  let found = 0
  for (const { home, keys } of byHome(taken)) {
    const findings = (await recovery.findLost(source, home, keys)).filter(only)
    found += findings.length
    for (const runId of new Set(keys.map(k => k.runId))) {
      const own = findings.filter(f => runOf.get(f.key) === runId)
      if (own.length > 0) await controlPlane.putReconcileItems(runId, own)
    }
    await settleQuarantine({ controlPlane, region }, home, keys, findings)
  }
  return found
}

const IN_QUARANTINE = { dropped: 'drop', reapplied: 'reapply', exported: 'exported' } as const

/** Puts decisions on record in the new home's quarantine, which keeps its own. */
async function settleQuarantine(
  { controlPlane, region }: Pick<ListParts, 'controlPlane' | 'region'>,
  home: string,
  keys: readonly Taken[],
  findings: readonly ReconcileFinding[],
): Promise<void> {
  const late = new Map(findings.flatMap(f => (eventIdOf(f) === null ? [] : [[f.id, eventIdOf(f) ?? '']])))
  if (late.size === 0) return
  for (const { key, runId } of keys.filter(k => findings.some(f => f.key === k.key))) {
    for await (const item of itemsOf(controlPlane, runId, { key })) {
      const eventId = late.get(item.id)
      if (item.decision === null || item.reason === null || eventId === undefined) continue
      await region(home).decideQuarantined([eventId], { runId, decision: IN_QUARANTINE[item.decision], reason: item.reason })
    }
  }
}

/** What may still be found when the region is back: events that arrive at the new home late. Its outbox has no new ones of the ended epoch. */
export function mayBeLate({ kind, content }: ReconcileFinding): boolean {
  return kind === 'event' || (typeof content === 'object' && content !== null && 'quarantined' in content && content.quarantined === true)
}

/** The event that an item is about, as the quarantine knows it. */
export function eventIdOf({ content }: Pick<ReconcileFinding, 'content'>): string | null {
  if (typeof content !== 'object' || content === null || Array.isArray(content)) return null
  const { eventId } = content as { readonly eventId?: unknown }
  return typeof eventId === 'string' ? eventId : null
}

export async function decideInQuarantine(
  region: (name: string) => RegionDatabase,
  home: string,
  item: {
    readonly runId: string
    readonly content: ReconcileFinding['content']
    readonly decision: keyof typeof IN_QUARANTINE
    readonly reason: string
  },
): Promise<void> {
  const eventId = eventIdOf(item)
  if (eventId === null) return
  await region(home).decideQuarantined([eventId], { runId: item.runId, decision: IN_QUARANTINE[item.decision], reason: item.reason })
}

const PAGE = 500

/** All items of a run, page by page. */
export async function* itemsOf(
  controlPlane: Pick<ControlPlane, 'reconcileItems'>,
  runId: string,
  filter: { readonly key?: string; readonly undecided?: boolean },
) {
  let after: { readonly key: string; readonly id: string } | undefined
  for (;;) {
    const page = await controlPlane.reconcileItems(runId, { ...filter, limit: PAGE, ...(after === undefined ? {} : { after }) })
    yield* page
    const last = page.at(-1)
    if (last === undefined || page.length < PAGE) return
    after = { key: last.key, id: last.id }
  }
}

export function batches<T>(all: readonly T[], size: number): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, i) => all.slice(i * size, (i + 1) * size))
}

export async function openExile(controlPlane: Pick<ControlPlane, 'exiles'>, region: string): Promise<Exile | null> {
  const [newest] = await controlPlane.exiles(region)
  return newest === undefined || newest.endedAt !== null ? null : newest
}

export function notInExile(region: string): HomeregionError {
  return new HomeregionError('check-refused', {
    fact: `the control plane has no open exile of ${region}: no forced failover took keys from it, or it is back`,
    state: 'Nothing was changed.',
    next: 'homeregion status',
  })
}
