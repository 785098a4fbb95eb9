import { HomeregionError, isHomeregionError } from '../domain/errors.ts'
import { isJsonObject, type Json } from '../domain/evidence.ts'
import type { ForcedFailover, ReconcileDecision, ReconcileItem } from '../domain/failover.ts'
import { showKey } from '../domain/key.ts'
import { byCodeUnit } from '../domain/order.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
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
  if (!exile.done.includes('fenced')) return `${source} was not fenced yet: homeregion rejoin ${source} --reason TEXT`
  const taken = (await takenKeys(parts.controlPlane, exile)).filter(k => k.runId === runId)
  if (exile.endedAt !== null) await listLost(parts, source, taken, mayBeLate)
  else if (exile.done.includes('level')) return `${source} was brought level`
  else await listLost(parts, source, taken)
  return null
}

export type Which = { readonly items: readonly string[] } | { readonly keys: readonly string[] } | { readonly all: true }

/** `settled`: keys that were named, and of which everything was decided before. */
export type Chosen = { readonly items: readonly ReconcileItem[]; readonly settled: readonly string[] }

/**
 * The items that are meant, in the order in which they would have to be applied: those that are named, else the undecided ones.
 * @throws `unknown-run` for an item that is not there, `unknown-key` for a key that has none
 */
export async function chosen(controlPlane: ControlPlane, runId: string, which: Which): Promise<Chosen> {
  if ('keys' in which) return await chosenOfKeys(controlPlane, runId, which.keys)
  const found: ReconcileItem[] = []
  const wanted = 'items' in which ? new Set(which.items) : null
  for await (const item of itemsOf(controlPlane, runId, wanted === null ? { undecided: true } : {}))
    if (wanted === null || wanted.delete(item.id)) found.push(item)
  const [missing] = wanted ?? []
  if (missing === undefined) return { items: found.toSorted(inOrderOfWriting), settled: [] }
  throw new HomeregionError('unknown-run', {
    fact: `run ${runId} has no item ${showKey(missing)} to reconcile`,
    state: 'Nothing was decided.',
    next: `homeregion reconcile ${runId}`,
  })
}

async function chosenOfKeys(controlPlane: ControlPlane, runId: string, keys: readonly string[]): Promise<Chosen> {
  const items: ReconcileItem[] = []
  const settled: string[] = []
  for (const key of new Set(keys)) {
    const own: ReconcileItem[] = []
    for await (const item of itemsOf(controlPlane, runId, { key })) own.push(item)
    if (own.length === 0)
      throw new HomeregionError('unknown-key', {
        fact: `run ${runId} has nothing of the key ${showKey(key)} on its list`,
        state: 'Nothing was decided.',
        next: `homeregion reconcile ${runId}`,
      })
    const open = own.filter(item => item.decision === null)
    if (open.length === 0) settled.push(key)
    items.push(...open)
  }
  return { items: items.toSorted(inOrderOfWriting), settled }
}

/** By key and aggregate, and an aggregate's versions one after the other. */
function inOrderOfWriting(a: ReconcileItem, b: ReconcileItem): number {
  const [x, y] = [a, b].map(item => ({ key: item.key, aggregate: '', version: 0, ...eventOf(item) }))
  if (x === undefined || y === undefined) return 0
  return byCodeUnit(x.key, y.key) || byCodeUnit(x.aggregate, y.aggregate) || x.version - y.version
}

function eventOf({ content }: ReconcileItem): { aggregate: string; version: number } | null {
  if (!isJsonObject(content)) return null
  const { aggregateType, aggregateId, aggregateVersion } = content
  return typeof aggregateVersion === 'number'
    ? { aggregate: JSON.stringify([aggregateType, aggregateId]), version: aggregateVersion }
    : null
}

export type Order = { readonly decision: ReconcileDecision; readonly reason: string }

/** `before`: decided so already, by whoever it says. */
export type Parted = { readonly open: readonly ReconcileItem[]; readonly before: readonly ReconcileItem[] }

/**
 * Everything is looked at before anything is decided.
 * @throws `epoch-moved` (one was decided otherwise before), `usage` and `check-refused` where it cannot be applied again
 */
export function partDecided(
  parts: Pick<ReconcileParts, 'reapply'>,
  runId: string,
  items: readonly ReconcileItem[],
  to: ReconcileDecision,
): Parted {
  const otherwise = items.filter(item => item.decision !== null && item.decision !== to)
  const [first] = otherwise
  if (first !== undefined)
    throw new HomeregionError('epoch-moved', {
      fact: `${otherwise.length} of ${items.length} items were decided otherwise before: ${first.id} was ${decidedText(first)}`,
      state: 'Nothing was decided; what was decided before stands.',
      next: `homeregion reconcile ${runId} --undecided   (what can be decided still)`,
    })
  const open = items.filter(item => item.decision === null)
  if (to === 'reapplied') requireReapplicable(parts, runId, open)
  return { open, before: items.filter(item => item.decision !== null) }
}

export function decidedText({ decision, decidedBy, decidedAt }: ReconcileItem): string {
  return `${decision ?? '?'} by ${decidedBy ?? '?'} at ${decidedAt ?? '?'}`
}

/**
 * Decides one item after the other. `reapplied`: the write is applied at the new owner first, and on record as such afterwards; a process that dies
 * between the two leaves it undecided, and it is applied a second time under the same HOMEREGION_ITEM.
 * @throws `epoch-moved` (somebody else decided otherwise meanwhile), `outcome-unknown` and `check-refused` of the command that applies it again; its
 *   state says how many were decided before it
 */
export async function decide(
  parts: ReconcileParts,
  failover: ForcedFailover,
  items: readonly ReconcileItem[],
  order: Order,
  tell: (item: ReconcileItem) => void,
): Promise<void> {
  const homes = new Map((await parts.controlPlane.ownership([...new Set(items.map(i => i.key))])).map(r => [r.key, r]))
  for (const [done, item] of items.entries()) {
    try {
      tell(await decideOne(parts, failover, item, { order, home: homes.get(item.key) }))
    } catch (error) {
      if (!isHomeregionError(error)) throw error
      const again = order.decision === 'reapplied' ? `reapply --decide ${item.id} --reason TEXT` : '--undecided'
      throw stoppedAt(error, `homeregion reconcile ${failover.runId} ${again}`, item, { done, left: items.length - done - 1 })
    }
  }
}

async function decideOne(
  parts: ReconcileParts,
  failover: ForcedFailover,
  item: ReconcileItem,
  { order, home }: { readonly order: Order; readonly home: OwnershipRecord | undefined },
): Promise<ReconcileItem> {
  const { controlPlane, fault, region } = parts
  // Read again: whoever decided it while those before it were applied would otherwise find it applied against their word, or twice.
  if (order.decision === 'reapplied' && (await isOpen(controlPlane, item))) {
    await applyAgain(parts, failover, item, { target: home?.homeRegion ?? '', epoch: home?.epoch ?? 0 })
    await fault('reconcile:reapplied')
  }
  const decided = await controlPlane.decideReconcileItem(failover.runId, item.id, order.decision, order.reason)
  await fault('reconcile:decided')
  const { decision, reason } = decided
  if (home !== undefined && decision !== null && reason !== null)
    await decideInQuarantine(region, home.homeRegion, { runId: failover.runId, content: item.content, decision, reason })
  return decided
}

async function isOpen(controlPlane: ControlPlane, { runId, id }: ReconcileItem): Promise<boolean> {
  const [now] = await controlPlane.reconcileItems(runId, { id, limit: 1 })
  return now?.decision === null
}

/** What was decided before the one that failed stands, and nobody has to find out which that was. */
function stoppedAt(
  error: HomeregionError,
  again: string,
  item: ReconcileItem,
  { done, left }: { readonly done: number; readonly left: number },
): HomeregionError {
  const { fact, state, next } = error.text
  const others = done + left === 0 ? [] : [`Before it ${done} were decided as asked; ${left} after it were not reached.`]
  const text = {
    fact: fact.includes(item.id) ? fact : `item ${item.id} of ${showKey(item.key)}: ${fact}`,
    state: [...(state === undefined ? [] : [state]), ...others].join(' '),
    next: next ?? again,
  }
  return new HomeregionError(error.code, text, { cause: error, retriable: error.retriable, fields: { ...error.fields, done, left } })
}

function requireReapplicable({ reapply }: Pick<ReconcileParts, 'reapply'>, runId: string, items: readonly ReconcileItem[]): void {
  if (reapply === null)
    throw new HomeregionError('usage', {
      fact: 'no command that applies a write again is configured (reapply)',
      state: 'Nothing was decided.',
      next: `configure reapply.command, or: homeregion reconcile ${runId} exported --all --file FILE --reason TEXT`,
    })
  const there = items.find(
    ({ content }) => isJsonObject(content) && (content.appliedAtHome === true || typeof content.appliedAtHome === 'number'),
  )
  if (there === undefined) return
  throw new HomeregionError('check-refused', {
    fact: `item ${there.id} is applied at the new home already: only the old one has lost it`,
    state: 'Nothing was decided.',
    next: `homeregion reconcile ${runId} drop --decide ${there.id} --reason TEXT   (it stays at the new home)`,
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
