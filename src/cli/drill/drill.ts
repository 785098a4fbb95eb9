import { randomUUID } from 'node:crypto'
import { formatMs } from '../../domain/duration.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import type { DrillResult } from '../../domain/failover.ts'
import type { FarConsumer } from '../../domain/far-count.ts'
import { parseKey, showKey } from '../../domain/key.ts'
import type { OwnershipRecord } from '../../domain/ownership.ts'
import type { Operator } from '../../engine/context.ts'
import { startRun } from '../../engine/run.ts'
import { composeFarConsumer } from '../compose-drill.ts'
import type { CliContext, World } from '../context.ts'
import { createOperator, watchSignals } from '../operator.ts'
import { requestPlan } from '../plan-request.ts'
import { printable } from '../render/error.ts'
import { createProgress, noLiveLine } from '../render/progress.ts'

export type DrillFlags = {
  readonly keys?: readonly string[]
  readonly from?: string
  readonly to?: string
  readonly return: boolean
  readonly objective: number
  readonly runbook: string
}

/** One way of a drill: how it ended, and when the first write was admitted at the target. */
type Leg = {
  readonly runId: string | null
  readonly outcome: 'moved' | 'failed' | 'pre-empted'
  readonly recoveryMs: number | null
  readonly why: string | null
}

export async function drill(context: CliContext, flags: DrillFlags): Promise<void> {
  const format = context.format('json')
  const { config } = await context.settings()
  const world = await context.connect()
  const { records, source, target } = await canaries(
    world,
    config.regions.map(r => r.name),
    flags,
  )
  const consumer = composeFarConsumer(config, context.env)
  const began = performance.now()
  try {
    const keys = records.map(r => r.key)
    const there = await leg(context, world, keys, target, flags.runbook)
    // Counted before the way back: what is written then has another epoch.
    const count = there.outcome === 'moved' ? await counted(consumer, source, target, records) : null
    const back = there.outcome === 'moved' && flags.return ? await leg(context, world, keys, source, flags.runbook) : null
    const result = resultOf({ source, target, keys: keys.length, there, back, count, flags, tookMs: performance.now() - began })
    await world.controlPlane.recordDrill(result)
    if (format === 'json') context.out.line(JSON.stringify(result))
    else context.out.line(printable(drillText(result, there, back, flags.return)))
    context.exit(exitOf(result, there, back))
  } finally {
    await consumer.close()
  }
}

async function canaries(
  world: World,
  regions: readonly string[],
  flags: DrillFlags,
): Promise<{ readonly records: readonly OwnershipRecord[]; readonly source: string; readonly target: string }> {
  const keys = [...new Set((flags.keys ?? []).map(parseKey))]
  if (keys.length === 0) throw usage('a drill moves keys that were named for it, and none is: --keys canary-1,canary-2')
  const records = await world.controlPlane.ownership(keys)
  const missing = keys.filter(key => !records.some(r => r.key === key))
  if (missing.length > 0)
    throw new HomeregionError('unknown-key', {
      fact: `not registered: ${missing.map(showKey).join(', ')}`,
      state: 'Nothing was changed.',
      next: `homeregion key add ${missing.map(showKey).join(' ')} --home REGION`,
    })
  const homes = [...new Set(records.map(r => r.homeRegion))]
  const source = flags.from ?? homes[0] ?? ''
  if (homes.length !== 1 || homes[0] !== source)
    throw usage(
      `the keys are at home in ${homes.join(' and ')}; a drill leaves one region${flags.from === undefined ? '' : `, ${flags.from}`}`,
    )
  const others = regions.filter(name => name !== source)
  const target = flags.to ?? (others.length === 1 ? others[0] : undefined)
  if (target === undefined) throw usage(`--to is not given, and there are ${others.length} other regions: ${others.join(', ')}`)
  return { records, source, target }
}

/** One planned move of the canary keys. Somebody who needs the keys meanwhile comes first: the drill gives way, and says so. */
async function leg(context: CliContext, world: World, keys: readonly string[], to: string, runbook: string): Promise<Leg> {
  const signals = watchSignals(context, () => undefined)
  const progress = createProgress(context.err, noLiveLine)
  const began = performance.now()
  let runId: string | null = null
  let admittedMs: number | null = null
  const answers = { yes: true, confirm: keys[0] ?? null, confirmCount: keys.length }
  const asked = createOperator(context, answers, progress.report, signals, progress.close)
  const operator: Operator = {
    ...asked,
    report: event => {
      if (event.type === 'run-opened') runId = event.runId
      // Its gate is a write that the target admits; with several keys the last one counts.
      if (event.type === 'step-passed' && event.step.action?.kind === 'activate') admittedMs = performance.now() - began
      asked.report(event)
    },
  }
  try {
    const plan = await requestPlan(context, keys, { to, runbook, confirmCount: keys.length })
    const end = await startRun(world.engine(operator), plan, { reason: `drill: ${keys.length} canary keys to ${to}`, observeMs: 0 })
    const bad = end.keys.find(k => k.end.exit !== 'done')
    if (bad === undefined) return { runId: end.runId, outcome: 'moved', recoveryMs: admittedMs, why: null }
    return { runId: end.runId, outcome: 'failed', recoveryMs: null, why: `${showKey(bad.move.key)}: ${bad.end.fact}; ${bad.end.state}` }
  } catch (error) {
    if (!isHomeregionError(error)) throw error
    const given = PRE_EMPTED.some(code => code === error.code)
    return { runId, outcome: given ? 'pre-empted' : 'failed', recoveryMs: null, why: error.text.fact }
  } finally {
    progress.close()
    signals.stop()
  }
}

const PRE_EMPTED = ['key-busy', 'superseded', 'run-closed', 'run-leased', 'epoch-moved', 'plan-stale'] as const

async function counted(consumer: FarConsumer, source: string, target: string, records: readonly OwnershipRecord[]) {
  const keys = records.map(({ key, epoch }) => ({ key, epoch }))
  // A count that fails is not counted, which is never none.
  return await consumer.count(source, target, keys).catch((error: unknown) => {
    if (isHomeregionError(error)) return null
    throw error
  })
}

function resultOf(about: {
  readonly source: string
  readonly target: string
  readonly keys: number
  readonly there: Leg
  readonly back: Leg | null
  readonly count: { readonly events: number; readonly duplicates: number; readonly gaps: number } | null
  readonly flags: DrillFlags
  readonly tookMs: number
}): DrillResult {
  const { source, target, keys, there, back, count, flags, tookMs } = about
  const legs = [there, ...(back === null ? [] : [back])]
  const clean = count !== null && count.duplicates === 0 && count.gaps === 0
  const outcome: DrillResult['outcome'] = legs.some(l => l.outcome === 'pre-empted')
    ? 'pre-empted'
    : legs.some(l => l.outcome === 'failed') || !clean
      ? 'failed'
      : (there.recoveryMs ?? Infinity) > flags.objective
        ? 'missed-objective'
        : 'passed'
  return {
    ...{ id: randomUUID(), source, target, keys, outcome },
    recoveryMs: there.recoveryMs === null ? null : Math.round(there.recoveryMs),
    objectiveMs: flags.objective,
    ...{ duplicates: count?.duplicates ?? null, gaps: count?.gaps ?? null },
    tookMs: Math.round(tookMs),
    detail: {
      way: 'planned move of canary keys',
      runs: legs.flatMap(l => (l.runId === null ? [] : [l.runId])),
      events: count?.events ?? null,
      returned: back === null ? null : back.outcome === 'moved',
      returnMs: back?.recoveryMs === undefined || back.recoveryMs === null ? null : Math.round(back.recoveryMs),
      why: legs.flatMap(l => (l.why === null ? [] : [l.why])),
    },
  }
}

function drillText(result: DrillResult, there: Leg, back: Leg | null, wanted: boolean): string {
  const { outcome, source, target, keys, recoveryMs, objectiveMs, gaps, duplicates } = result
  const away = there.outcome === 'moved' && back?.outcome !== 'moved'
  return [
    `drill ${outcome}: ${keys} canary keys ${source} -> ${target}, by a planned move`,
    `recovered  ${recoveryMs === null ? 'no write was admitted at the target' : `${formatMs(recoveryMs)} to the first write at ${target}`} (objective ${formatMs(objectiveMs ?? 0)})`,
    `consumers  ${gaps ?? 'unknown'} gaps, ${duplicates ?? 'unknown'} duplicates at ${target}`,
    ...(back?.outcome === 'moved' ? [`returned   to ${source}${back.recoveryMs === null ? '' : ` in ${formatMs(back.recoveryMs)}`}`] : []),
    ...[there, ...(back === null ? [] : [back])].flatMap(l => (l.why === null ? [] : [`why        ${l.why}`])),
    ...(away ? [`state: the canary keys are ${target}'s${wanted ? ': they could not be moved back' : ', as asked for'}`] : []),
    ...(away && wanted ? [`next:  homeregion status`] : []),
  ].join('\n')
}

function exitOf({ outcome }: DrillResult, there: Leg, back: Leg | null): 'done' | 'conflict' | 'changes' | 'needsHuman' | 'refused' {
  if (outcome === 'passed') return 'done'
  if (outcome === 'pre-empted') return 'conflict'
  if (outcome === 'missed-objective') return 'changes'
  return there.outcome === 'moved' && back?.outcome !== 'moved' ? 'needsHuman' : 'refused'
}

function usage(fact: string): HomeregionError {
  return new HomeregionError('usage', { fact, state: 'Nothing was changed.', next: 'homeregion drill --help' })
}
