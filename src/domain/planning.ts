import { createHash } from 'node:crypto'
import { type CheckName, OUTSIDE_FENCES, type OutsideFence } from './checks.ts'
import type { Config } from './config.ts'
import { HomeregionError } from './errors.ts'
import { BOUNDARY_FENCE } from './fence.ts'
import type { InterlockPolicy } from './interlock.ts'
import { showKey } from './key.ts'
import type { OwnershipRecord } from './ownership.ts'
import type { DroppedCheck, Plan, PlannedMove } from './plan.ts'
import type { PinnedRunbook } from './runbook.ts'

/**
 * Checks that the configured topology, transport or contract leaves nothing to observe for. They are dropped from the plan in the
 * open, with the reason; what proves the same thing stands in it.
 */
export function droppedChecks(config: Pick<Config, 'topology' | 'transport' | 'idempotency'>): readonly DroppedCheck[] {
  const dropped: DroppedCheck[] = []
  if (config.topology === 'shared') {
    const reason = 'both regions write one shared database: there is nothing to catch up with'
    for (const check of ['replication-behind', 'events-replicated', 'barrier-applied', 'versions-equal', 'idempotency-carried'] as const)
      dropped.push({ check, reason })
    return dropped
  }
  if (config.transport.mirror === 'none')
    dropped.push({
      check: 'events-replicated',
      reason: "mirror: none, the target's inbox reads the source's Kafka itself; barrier-applied proves the arrival",
    })
  if (config.idempotency === null) dropped.push({ check: 'idempotency-carried', reason: 'no idempotency table is configured' })
  return dropped
}

/** What the interlock demands before activation under this configuration. */
export function interlockPolicy(config: Pick<Config, 'topology' | 'transport' | 'idempotency' | 'policy'>): InterlockPolicy {
  const dropped = new Set<CheckName>(droppedChecks(config).map(d => d.check))
  const required = (['fence-holds', 'barrier-applied', 'versions-equal', 'idempotency-carried'] as const).filter(
    check => !dropped.has(check),
  )
  return { required, evidenceMaxAgeMs: config.policy.evidenceMaxAgeMs }
}

export type PlanInput = {
  readonly pinned: PinnedRunbook
  /** Keys in the order they shall move. */
  readonly keys: readonly string[]
  readonly target: string
  readonly records: readonly OwnershipRecord[]
  readonly config: Config
  /** Keys at home in each region, for runbooks that fence a whole one. */
  readonly atHome: ReadonlyMap<string, number>
  /** Of a forced failover: the fence from outside that it stands on. */
  readonly outsideFence?: OutsideFence
}

/**
 * The plan as a value. Pure.
 * @throws HomeregionError `unknown-region`, `unknown-key`, `key-busy` (the key is not ACTIVE), `same-region` (one key, already there),
 *   `unknown-fence`, `fence-too-wide` (the runbook fences a whole region that would keep keys)
 */
export function computePlan(input: PlanInput): Plan {
  const { config, keys, target } = input
  if (!config.regions.some(r => r.name === target))
    throw new HomeregionError('unknown-region', {
      fact: `there is no region named ${showKey(target)}; the configuration has ${config.regions.map(r => r.name).join(', ')}`,
      state: 'Nothing was changed.',
      next: 'homeregion config show',
    })
  const byKey = new Map(input.records.map(r => [r.key, r]))
  const missing = keys.filter(k => !byKey.has(k))
  if (missing.length > 0)
    throw new HomeregionError('unknown-key', {
      fact: `${count(missing.length, 'key is', 'keys are')} not registered in the control plane: ${sample(missing)}`,
      state: 'Nothing was changed.',
      next: 'homeregion key list',
    })
  const wanted = keys.map(k => byKey.get(k)).filter(r => r !== undefined)
  const alreadyThere = wanted.filter(r => r.state === 'ACTIVE' && r.homeRegion === target)
  const first = alreadyThere[0]
  if (first !== undefined && wanted.length === 1)
    throw new HomeregionError('same-region', {
      fact: `${showKey(first.key)} is at home in ${target} already (epoch ${first.epoch}, ACTIVE)`,
      state: 'Nothing was changed.',
      next: `homeregion status ${showKey(first.key)}`,
    })
  // A forced failover takes a key in whatever state a run left it: the source that could end it is dark.
  const busy = input.pinned.runbook.intent === 'failover' ? undefined : wanted.find(r => r.state !== 'ACTIVE')
  if (busy !== undefined)
    throw new HomeregionError(
      'key-busy',
      {
        fact: `${showKey(busy.key)} is ${busy.state}: run ${busy.runId ?? '?'} by ${busy.changedBy} is moving it since ${busy.changedAt}`,
        state: `It is still at home in ${busy.homeRegion}; nothing was changed.`,
        next: `homeregion run show ${busy.runId ?? ''}`.trim(),
      },
      { fields: { runId: busy.runId } },
    )
  const moves: PlannedMove[] = wanted
    .filter(r => r.homeRegion !== target)
    .map(r => ({ key: r.key, source: r.homeRegion, target, epoch: r.epoch, seq: r.seq }))
  requireRegionLeft(input, moves)
  const dropped = [...droppedChecks(config), ...otherFences(input.outsideFence)]
  return { id: planId(input.pinned, moves, dropped), pinned: input.pinned, moves, alreadyThere, dropped }
}

/** A forced failover stands on exactly one fence from outside; which one is part of what is confirmed. */
function otherFences(chosen: OutsideFence | undefined): readonly DroppedCheck[] {
  if (chosen === undefined) return []
  return OUTSIDE_FENCES.filter(check => check !== chosen).map(check => ({ check, reason: `this run stands on ${chosen}` }))
}

/** A fence of the whole region stops every key in it: only a plan that leaves none behind may name one. */
function requireRegionLeft({ pinned, config, atHome }: PlanInput, moves: readonly PlannedMove[]): void {
  const fences = pinned.runbook.steps.flatMap(step => (step.action?.kind === 'fence-region' ? step.action.fences : []))
  if (fences.length === 0) return
  for (const source of new Set(moves.map(m => m.source))) {
    const known = [BOUNDARY_FENCE, ...(config.regions.find(r => r.name === source)?.fences ?? []).map(f => f.name)]
    const strange = fences.find(name => !known.includes(name))
    if (strange !== undefined)
      throw new HomeregionError('unknown-fence', {
        fact: `runbook ${pinned.runbook.name} names the fence ${JSON.stringify(strange)}; ${source} has ${known.join(', ')}`,
        state: 'Nothing was changed.',
        next: 'homeregion config show',
      })
    const staying = (atHome.get(source) ?? 0) - moves.filter(m => m.source === source).length
    const unregistered = config.ownership.defaultHome === source
    if (staying <= 0 && !unregistered) continue
    throw new HomeregionError(
      'fence-too-wide',
      {
        fact: `runbook ${pinned.runbook.name} fences ${source} as a whole (${fences.join(', ')}), and ${unregistered ? 'keys that nobody registered are at home there' : `${count(staying, 'other key stays', 'other keys stay')} there`}`,
        state: 'Nothing was changed.',
        next: unregistered ? 'name another ownership.defaultHome first' : `homeregion key list --home ${source}, and move all of them`,
      },
      { fields: { region: source, staying } },
    )
  }
}

/** Hash over what the plan would do; the epochs are in it, so a plan is stale as soon as one key has moved. */
function planId(pinned: PinnedRunbook, moves: readonly PlannedMove[], dropped: readonly DroppedCheck[]): string {
  const value = JSON.stringify([pinned.sha256, moves.map(m => [m.key, m.source, m.target, m.epoch, m.seq]), dropped.map(d => d.check)])
  return createHash('sha256').update(value).digest('hex').slice(0, 12)
}

function count(n: number, one: string, many: string): string {
  return `${n} ${n === 1 ? one : many}`
}

function sample(keys: readonly string[]): string {
  return keys.slice(0, 5).map(showKey).join(', ') + (keys.length > 5 ? `, +${keys.length - 5} more` : '')
}
