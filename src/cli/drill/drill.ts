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
import { fittedLines } from '../render/wrapped.ts'
import { bringHome } from './bring-home.ts'
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
  const consumer = composeFarConsumer(config, context.env)
  const signals = watchSignals(context, () => undefined)
  try {
    const { returned: before } = await bringHome(context, world, flags, signals.interrupted)
    const { records, source, target } = await canaries(
      world,
      config.regions.map(r => r.name),
      flags,
    )
    const keys = records.map(r => r.key)
    const id = randomUUID()
    // From here on whoever comes after a killed process knows where the keys belong.
    if (flags.return) await world.controlPlane.beginDrill({ id, home: source, target, keys, holder: world.holder })
    const began = performance.now()
    const { runbook } = flags
    const there = await leg(context, world, { keys, to: target, runbook, interrupted: signals.interrupted })
    // Counted before the way back: what is written then has another epoch.
    const stays = there.outcome === 'pre-empted' || there.wanted
    const count = there.outcome === 'moved' && !stays ? await counted(consumer, source, target, records) : null
    // An interrupted drill ends by the way back, and so does one that moved some of its keys: they do not belong where they are now.
    const away = flags.return && !stays ? (await world.controlPlane.ownership(keys)).filter(r => r.homeRegion !== source) : []
    const back =
      away.length > 0 ? await leg(context, world, { keys: away.map(r => r.key), to: source, runbook, interrupted: () => false }) : null
    const tookMs = performance.now() - began
    const result = resultOf({ id, source, target, keys: keys.length, before, there, back, count, flags, tookMs })
    // Before the record: whoever waits for the keys goes on once it is there.
    const found = result.outcome === 'passed' ? [] : await world.controlPlane.ownership(keys)
    await world.controlPlane.recordDrill(result)
    if (format === 'json') context.out.line(JSON.stringify(result))
    else context.out.line(fittedLines(context.out, printable(drillText(result, { there, back, wanted: flags.return, found, keys }))))
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
  readonly id: string
  readonly source: string
  readonly target: string
  readonly keys: number
  /** Brought home first: an earlier drill had left them. */
  readonly before: readonly string[]
  readonly there: Leg
  readonly back: Leg | null
  readonly count: FarCount | null
  readonly flags: DrillFlags
  readonly tookMs: number
}): DrillResult {
  const { id, source, target, keys, before, there, back, count, flags, tookMs } = about
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
    ...{ id, source, target, keys, outcome },
    recoveryMs: there.recoveryMs === null ? null : Math.round(there.recoveryMs),
    objectiveMs: flags.objective,
    ...{ duplicates: count?.duplicates ?? null, gaps: count?.gaps ?? null },
    tookMs: Math.round(tookMs),
    detail: {
      way: 'planned move of canary keys',
      runs: legs.flatMap(l => (l.runId === null ? [] : [l.runId])),
      events: count?.events ?? null,
      writes: count?.writes ?? null,
      broughtHomeFirst: before,
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
  return (there.outcome === 'moved' || back !== null) && back?.outcome !== 'moved' ? 'needsHuman' : 'refused'
}

function usage(fact: string): HomeregionError {
  return new HomeregionError('usage', { fact, state: 'Nothing was changed.', next: 'homeregion drill --help' })
}
