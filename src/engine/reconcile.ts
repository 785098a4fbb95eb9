import { HomeregionError } from '../domain/errors.ts'
import type { Json } from '../domain/evidence.ts'
import type { ForcedFailover, ReconcileDecision, ReconcileItem } from '../domain/failover.ts'
import { showKey } from '../domain/key.ts'
import type { ControlPlane, FaultPoint, RegionDatabase } from '../domain/ports.ts'
import type { Reapply, Recovery } from '../domain/recovery.ts'
import { decideInQuarantine, itemsOf, listLost, mayBeLate, takenKeys } from './lost-keys.ts'

export type ReconcileParts = {
  readonly controlPlane: ControlPlane
  readonly region: (name: string) => RegionDatabase
  readonly recovery: Recovery
  /** null: none is configured. */
  readonly reapply: Reapply | null
  readonly fault: FaultPoint
}

/** @throws `unknown-run` when the run is no forced failover that was committed */
export async function failoverOf(controlPlane: ControlPlane, runId: string): Promise<ForcedFailover> {
  const [found] = await controlPlane.forcedFailovers({ runId, limit: 1 })
  if (found !== undefined) return found
  throw new HomeregionError('unknown-run', {
    fact: `the control plane has no forced failover of a run ${showKey(runId)}`,
    state: 'Nothing was changed.',
    next: 'homeregion run list',
  })
}

/**
 * Looks again while the source is fenced and not level yet, and for late events alone once it is back: they arrive when they do. Returns why it did
 * not look, or null. What was found before stays as it is.
 */
export async function lookAgain(parts: ReconcileParts, { source, runId }: ForcedFailover): Promise<string | null> {
  const exile = (await parts.controlPlane.exiles(source)).find(e => e.runIds.includes(runId))
  if (exile === undefined) return `${source} is back`
  if (!exile.done.includes('fenced')) return `${source} was not fenced yet: homeregion rejoin ${source}`
  const taken = (await takenKeys(parts.controlPlane, exile)).filter(k => k.runId === runId)
  if (exile.endedAt !== null) await listLost(parts, source, taken, mayBeLate)
  else if (exile.done.includes('level')) return `${source} was brought level`
  else await listLost(parts, source, taken)
  return null
}

export type Which = { readonly items: readonly string[] } | { readonly key: string }

/** The items that are meant, in the order in which they would have to be applied. @throws `unknown-run` for one that is not there */
export async function chosen(controlPlane: ControlPlane, runId: string, which: Which): Promise<readonly ReconcileItem[]> {
  const found: ReconcileItem[] = []
  const wanted = 'items' in which ? new Set(which.items) : null
  const filter = 'key' in which ? { key: which.key, undecided: true } : {}
  for await (const item of itemsOf(controlPlane, runId, filter)) if (wanted === null || wanted.delete(item.id)) found.push(item)
  const [missing] = wanted ?? []
  if (missing === undefined) return found.toSorted(inOrderOfWriting)
  throw new HomeregionError('unknown-run', {
    fact: `run ${runId} has no item ${showKey(missing)} to reconcile`,
    state: 'Nothing was decided.',
    next: `homeregion reconcile ${runId}`,
  })
}

/** An aggregate's versions one after the other; otherwise as they are listed. */
function inOrderOfWriting(a: ReconcileItem, b: ReconcileItem): number {
  const [x, y] = [eventOf(a), eventOf(b)]
  if (a.key !== b.key || x === null || y === null || x.aggregate !== y.aggregate) return 0
  return x.version - y.version
}

function eventOf({ content }: ReconcileItem): { aggregate: string; version: number } | null {
  if (!isObject(content)) return null
  const { aggregateType, aggregateId, aggregateVersion } = content
  return typeof aggregateVersion === 'number'
    ? { aggregate: JSON.stringify([aggregateType, aggregateId]), version: aggregateVersion }
    : null
}

export type Order = { readonly decision: ReconcileDecision; readonly reason: string }

/**
 * Decides one item after the other. `reapplied`: the write is applied at the new owner first, and on record as such afterwards; a process that dies
 * between the two leaves it undecided, and it is applied a second time under the same HOMEREGION_ITEM.
 * @throws `epoch-moved` (decided otherwise before), `check-refused` (it could not be applied again); those before it stay decided
 */
export async function decide(
  parts: ReconcileParts,
  failover: ForcedFailover,
  items: readonly ReconcileItem[],
  order: Order,
  tell: (item: ReconcileItem) => void,
): Promise<void> {
  const { controlPlane, fault, region } = parts
  const homes = new Map((await controlPlane.ownership([...new Set(items.map(i => i.key))])).map(r => [r.key, r]))
  if (order.decision === 'reapplied') requireReapplicable(parts, items)
  for (const item of items) {
    const home = homes.get(item.key)
    if (order.decision === 'reapplied' && item.decision === null) {
      await applyAgain(parts, failover, item, { target: home?.homeRegion ?? '', epoch: home?.epoch ?? 0 })
      await fault('reconcile:reapplied')
    }
    const decided = await controlPlane.decideReconcileItem(failover.runId, item.id, order.decision, order.reason)
    await fault('reconcile:decided')
    const { decision, reason } = decided
    if (home !== undefined && decision !== null && reason !== null)
      await decideInQuarantine(region, home.homeRegion, { runId: failover.runId, content: item.content, decision, reason })
    tell(decided)
  }
}

function requireReapplicable({ reapply }: ReconcileParts, items: readonly ReconcileItem[]): void {
  if (reapply === null)
    throw new HomeregionError('usage', {
      fact: 'no command that applies a write again is configured (reapply)',
      state: 'Nothing was decided.',
      next: 'configure reapply.command, or decide drop or exported',
    })
  const there = items.find(
    ({ content }) => isObject(content) && (content.appliedAtHome === true || typeof content.appliedAtHome === 'number'),
  )
  if (there === undefined) return
  throw new HomeregionError('check-refused', {
    fact: `item ${there.id} is applied at the new home already: only the old one has lost it`,
    state: 'Nothing was decided.',
    next: 'decide drop (it stays at the new home) or exported',
  })
}

async function applyAgain(
  { reapply }: ReconcileParts,
  { runId, source }: ForcedFailover,
  item: ReconcileItem,
  home: { readonly target: string; readonly epoch: number },
): Promise<void> {
  const { id, key, kind, subject, content } = item
  const write: Json = { run: runId, item: id, key, kind, subject, source, ...home, content }
  await reapply?.(write, {
    ...{ HOMEREGION_RUN: runId, HOMEREGION_ITEM: id, HOMEREGION_KIND: kind, HOMEREGION_SOURCE: source, HOMEREGION_TARGET: home.target },
    ...{ HOMEREGION_KEY: key, HOMEREGION_EPOCH: String(home.epoch) },
  })
}

function isObject(content: Json): content is { readonly [name: string]: Json } {
  return typeof content === 'object' && content !== null && !Array.isArray(content)
}
