import { newEntry } from '../../adapters/files/fence-entry.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { remedyOf } from '../../domain/evidence.ts'
import type { FenceEntry } from '../../domain/fence.ts'
import { type FenceLook, lookAtFences, probeFences } from '../../engine/fence-probe.ts'
import type { CliContext, World } from '../context.ts'
import { fencePlanText, fenceStatusText, probeText } from '../render/fence.ts'
import type { FenceFlags } from './flags.ts'
import { plansOf } from './plans.ts'
import { select } from './select.ts'
import { reconcile } from './tell.ts'

export async function plan(context: CliContext, name: string, flags: FenceFlags, direction: 'apply' | 'lift'): Promise<void> {
  const format = context.format('json')
  const { world, region, fences } = await select(context, name, flags.fence)
  await reconcile(context, world)
  const plans = await plansOf(fences, direction)
  if (format === 'json') context.out.line(JSON.stringify({ region: region.name, direction, fences: plans }))
  else
    context.out.line(
      `${fencePlanText(plans, context.out)}\n\nNothing was changed. To do it: homeregion fence ${direction} ${region.name} --reason …`,
    )
  if (plans.some(p => p.problem !== null)) context.exit('refused')
}

export async function probe(context: CliContext, name: string, flags: FenceFlags): Promise<void> {
  const format = context.format('json')
  const { world, region, fences } = await select(context, name, flags.fence)
  await reconcile(context, world)
  const writers = region.database.writers.map(w => w.role)
  const found = await probeFences(fences, world.region(region.name), world.fenceJournal, writers)
  await tellFoundLifted(context, world, found.fences)
  if (format === 'json') context.out.line(JSON.stringify({ region: region.name, ...found }))
  else context.out.line(probeText(region.name, found, context.out))
  if (found.verdict === 'pass') return
  const observed = [...found.fences.flatMap(f => f.proofs), ...found.writes].filter(o => o.verdict === found.verdict)
  throw new HomeregionError(found.verdict === 'fail' ? 'fence-open' : 'outcome-unknown', {
    fact: `${region.name}: ${observed.map(o => `${o.observer}: ${o.observed}`).join('; ')}`,
    state:
      found.verdict === 'fail' && observed.some(o => remedyOf([o]) === null)
        ? 'Writes can reach the region.'
        : 'No write was seen to get through; that every one is refused is not proved.',
    next: remedyOf(observed) ?? `homeregion fence apply ${region.name} --reason …`,
  })
}

export async function status(context: CliContext, name: string | null, flags: FenceFlags): Promise<void> {
  const format = context.format('json')
  const { config } = await context.settings()
  const regions = name === null ? config.regions.map(r => r.name) : [name]
  const selected = await Promise.all(regions.map(async region => await select(context, region, name === null ? undefined : flags.fence)))
  const world = await context.connect()
  await reconcile(context, world)
  const looks = (await Promise.all(selected.map(async ({ fences }) => await lookAtFences(fences, world.fenceJournal)))).flat()
  await tellFoundLifted(context, world, looks)
  if (format === 'json') context.out.line(JSON.stringify(looks))
  else context.out.line(fenceStatusText(looks, context.out))
  if (looks.some(l => l.foundLifted)) context.exit('refused')
  else if (looks.some(l => l.status.state === 'unknown')) context.exit('unknown')
}

/** Told once, so that `homeregion status` raises it until somebody applies the fence again or lifts it. */
async function tellFoundLifted(context: CliContext, world: World, looks: readonly FenceLook[]): Promise<void> {
  const entry = newEntry(world.holder.host)
  const by = `${world.holder.user}@${world.holder.host}`
  const found = looks.flatMap(({ fence, told, foundLifted }): readonly FenceEntry[] =>
    foundLifted && told?.event !== 'found-lifted'
      ? [
          entry({
            ...{ region: fence.region, fence: fence.name, kind: fence.kind, event: 'found-lifted', by, runId: told?.runId ?? null },
            ...{ reason: told?.reason ?? null, detail: { applied: told?.at ?? null, by: told?.by ?? null } },
          }),
        ]
      : [],
  )
  if (found.length === 0) return
  try {
    await world.fenceJournal.keep(found)
    await world.fenceJournal.handOver()
  } catch (error) {
    context.err.line(`note: not recorded: ${error instanceof Error ? error.message : String(error)}`)
  }
}
