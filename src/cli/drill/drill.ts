import { randomUUID } from 'node:crypto'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import type { DrillResult } from '../../domain/failover.ts'
import type { FarConsumer, FarCount } from '../../domain/far-count.ts'
import { parseKey, showKey } from '../../domain/key.ts'
import type { OwnershipRecord } from '../../domain/ownership.ts'
import { composeFarConsumer } from '../compose-drill.ts'
import type { CliContext, World } from '../context.ts'
import { watchSignals } from '../operator.ts'
import { drillText } from '../render/drill.ts'
import { printable } from '../render/error.ts'
import { type Leg, leg } from './leg.ts'

export type DrillFlags = {
  readonly keys?: readonly string[]
  readonly from?: string
  readonly to?: string
  readonly return: boolean
  readonly objective: number
  readonly runbook: string
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
  const signals = watchSignals(context, () => undefined)
  const began = performance.now()
  try {
    const keys = records.map(r => r.key)
    const { runbook } = flags
    const there = await leg(context, world, { keys, to: target, runbook, interrupted: signals.interrupted })
    // Counted before the way back: what is written then has another epoch.
    const stays = there.outcome === 'moved' && there.wanted
    const count = there.outcome === 'moved' && !stays ? await counted(consumer, source, target, records) : null
    // An interrupted drill ends by the way back: its keys do not belong where they are now.
    const back =
      there.outcome === 'moved' && flags.return && !stays
        ? await leg(context, world, { keys, to: source, runbook, interrupted: () => false })
        : null
    const result = resultOf({ source, target, keys: keys.length, there, back, count, flags, tookMs: performance.now() - began })
    // Before the record: whoever waits for the keys goes on once it is there.
    const found = result.outcome === 'passed' ? [] : await world.controlPlane.ownership(keys)
    await world.controlPlane.recordDrill(result)
    if (format === 'json') context.out.line(JSON.stringify(result))
    else context.out.line(printable(drillText(result, { there, back, wanted: flags.return, found })))
    const name = signals.name()
    context.exit(name === null ? exitOf(result, there, back) : name === 'SIGTERM' ? 'terminated' : 'interrupted')
  } finally {
    signals.stop()
    await consumer.close()
  }
}

async function canaries(
  world: World,
  regions: readonly string[],
  flags: DrillFlags,
): Promise<{ readonly records: readonly OwnershipRecord[]; readonly source: string; readonly target: string }> {
  const keys = [...new Set((flags.keys ?? []).map(parseKey))]
  if (keys.length === 0) throw usage('a drill moves keys that were named for it, and none is: --keys canary-1,canary-2, or --sandbox')
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
  readonly count: FarCount | null
  readonly flags: DrillFlags
  readonly tookMs: number
}): DrillResult {
  const { source, target, keys, there, back, count, flags, tookMs } = about
  const legs = [there, ...(back === null ? [] : [back])]
  const clean = count !== null && count.duplicates === 0 && count.gaps === 0
  const outcome: DrillResult['outcome'] =
    legs.some(l => l.outcome === 'pre-empted') || (there.wanted && back === null)
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

function exitOf({ outcome }: DrillResult, there: Leg, back: Leg | null): 'done' | 'conflict' | 'changes' | 'needsHuman' | 'refused' {
  if (outcome === 'passed') return 'done'
  if (outcome === 'pre-empted') return 'conflict'
  if (outcome === 'missed-objective') return 'changes'
  return there.outcome === 'moved' && back?.outcome !== 'moved' ? 'needsHuman' : 'refused'
}

function usage(fact: string): HomeregionError {
  return new HomeregionError('usage', { fact, state: 'Nothing was changed.', next: 'homeregion drill --help' })
}
