import { otherRegions } from '../../domain/config.ts'
import type { Fence, FenceCause } from '../../domain/fence.ts'
import { wisher } from '../../domain/fence-wish.ts'
import { requireLiftAllowed, unknownOf } from '../../engine/lift-permission.ts'
import { applyFences, endOf, type FenceResult, type FenceWatcher, liftFences, type SeenWishes } from '../../engine/region-fences.ts'
import type { CliContext, World } from '../context.ts'
import { watchSignals } from '../operator.ts'
import { printable } from '../render/error.ts'
import { fencePlanText, resultJson, resultText } from '../render/fence.ts'
import { requireAsking, requireConsent } from './consent.ts'
import type { FenceFlags } from './flags.ts'
import { type FencePlan, plansOf } from './plans.ts'
import { reasonOf, select } from './select.ts'
import { reconcile, recordedWhere } from './tell.ts'

type ChangeFlags = FenceFlags & { readonly reason: string }

/** Needs neither a run nor the control plane: the night when everything else is down is what it is for. */
export async function apply(context: CliContext, name: string, flags: ChangeFlags): Promise<void> {
  context.format('json')
  requireAsking(context, flags.yes === true)
  const reason = reasonOf(flags.reason)
  const { world, region, fences } = await select(context, name, flags.fence)
  // Who agreed beforehand asked for no plan, and a broker that does not answer must not hold the boundary up while one is made.
  if (flags.yes !== true) showPlans(context, await plansOf(fences, 'apply'))
  await requireConsent(flags.yes === true, { region: region.name, to: 'stop every writer of it' })
  const cause = causeOf(world, reason)
  await watched(context, world, region.name, fences.length, async watcher => await applyFences(fences, cause, watcher))
}

export async function lift(context: CliContext, name: string, flags: ChangeFlags): Promise<void> {
  context.format('json')
  requireAsking(context, flags.yes === true)
  const reason = reasonOf(flags.reason)
  const { world, region, fences } = await select(context, name, flags.fence)
  const { config } = await context.settings()
  const others = otherRegions(config, region.name)
  const allowed = async () =>
    await requireLiftAllowed({
      controlPlane: world.controlPlane,
      database: world.region(region.name),
      region: region.name,
      others: others.map(other => world.region(other)),
      asTarget: flags.asTarget === true,
      defaultHome: config.ownership.defaultHome,
    })
  const permission = await allowed()
  await reconcile(context, world)
  const { owned, compared } = permission
  context.err.line(
    `control plane: ${region.name} owns ${owned} keys; the ${compared} that can be written there are the same on both sides${unknownOf(permission)}`,
  )
  const seen = await showWishes(context, fences)
  showPlans(context, await plansOf(fences, 'lift'))
  await requireConsent(flags.yes === true, { region: region.name, to: 'let its writers in again' })
  const cause = causeOf(world, reason)
  // Asked again before each: a question may have stood for minutes, and the boundary, which comes last, is what opens the keys.
  const before = async () => void (await allowed())
  await watched(context, world, region.name, fences.length, async watcher => await liftFences(fences, cause, watcher, seen, before))
}

/** For whom each fence stands, as shown to whoever allows the lift: it is allowed for these wishes alone. */
async function showWishes(context: CliContext, fences: readonly Fence[]): Promise<SeenWishes> {
  const looks = await Promise.all(
    fences.map(async fence => ({
      fence,
      status: await fence.status().catch(() => null),
    })),
  )
  return new Map(
    looks.flatMap(({ fence, status }) => {
      if (status?.cause == null || status.asked === null) return []
      context.err.line(printable(`fence ${fence.name} is ${status.state} since ${status.since ?? '?'} for ${wisher(status.cause)}`))
      return [[fence.name, status.asked] as const]
    }),
  )
}

export function causeOf(world: World, reason: string): FenceCause {
  return { reason, by: `${world.holder.user}@${world.holder.host}`, runId: null }
}

export function showPlans(context: CliContext, plans: readonly FencePlan[]): void {
  context.err.line(`${fencePlanText(plans, context.err)}\n`)
}

/** Reports each fence as it happens, says where it is on record, and ends with the one error that says how the whole ended. */
export async function watched(
  context: CliContext,
  world: World,
  region: string,
  asked: number,
  work: (watcher: FenceWatcher) => Promise<readonly FenceResult[]>,
): Promise<void> {
  const json = context.format('json') === 'json'
  const signals = watchSignals(context, () => undefined)
  try {
    const results = await work({
      started: (fence, verb) => {
        if (context.err.isTerminal) context.err.line(`… ${verb} ${fence.name} (${fence.kind})`)
      },
      ended: result => (json ? undefined : context.out.line(resultText(result, context.out))),
      interrupted: signals.interrupted,
    })
    const recorded = await recordedWhere(world.fenceJournal)
    const end = endOf(results, asked)
    if (json) context.out.line(resultJson(region, results, recorded.controlPlane, world.fenceJournal.file))
    else (recorded.controlPlane ? context.out : context.err).line(recorded.line)
    if (end !== null) throw end
  } finally {
    signals.stop()
  }
}
