import { newEntry } from '../../adapters/files/fence-entry.ts'
import { createFaultPoint } from '../../adapters/system/fault-point.ts'
import { suggestion } from '../../domain/did-you-mean.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { Fence, FenceCause } from '../../domain/fence.ts'
import { applyFences, type FenceResult, liftFences, type SeenWishes } from '../../engine/region-fences.ts'
import type { CliContext, World } from '../context.ts'
import { causeOf, showPlans, watched } from './change.ts'
import { requireAsking, requireConsent } from './consent.ts'
import type { RotateFlags } from './flags.ts'
import { plansOf } from './plans.ts'
import { reasonOf, select } from './select.ts'
import { reconcile } from './tell.ts'

/** How a rotation that was killed is told from a fence that somebody wants to stand. */
const ROTATION = 'credentials rotate: '

/** Applies the credentials fences and lifts them again: the same code as the fence, so that its order and its proof hold here too. */
export async function rotate(context: CliContext, name: string, flags: RotateFlags): Promise<void> {
  context.format('json')
  requireAsking(context, flags.yes === true)
  const { world, region } = await select(context, name, undefined)
  const reason = `${ROTATION}${reasonOf(flags.reason ?? '')}`
  const known = region.fences.flatMap(f => (f.kind === 'credentials' ? f.roles.map(r => r.role) : []))
  if (known.length === 0)
    throw new HomeregionError('unknown-fence', {
      fact: `${region.name} has no credentials fence: nothing says where a new secret goes`,
      state: 'Nothing was changed.',
      next: 'add a fence of kind credentials to the configuration',
    })
  const stranger = flags.role?.find(role => !known.includes(role))
  if (stranger !== undefined)
    throw new HomeregionError('usage', {
      fact: `no credentials fence of ${region.name} has the role ${JSON.stringify(stranger)}; ${suggestion(stranger, known)}`,
      state: 'Nothing was changed.',
      next: 'homeregion config show',
    })
  const fences = world.rotations(region.name, flags.role ?? null)
  // Lifting is part of it, so that a fence somebody wants to stand must never be lifted by a rotation; the control plane says whether one does.
  await world.controlPlane.countOwnership()
  await reconcile(context, world)
  await requireNoFence(fences)
  showPlans(context, await plansOf(fences, 'apply'))
  await requireConsent(flags.yes === true, {
    region: region.name,
    to: 'close these logins, change their secrets and open them again',
  })
  const cause = causeOf(world, reason)
  await watched(context, world, region.name, fences.length, async watcher => {
    const applied = await applyFences(fences, cause, watcher)
    await createFaultPoint(context.env['HOMEREGION_FAULT'])('rotate:between')
    // What was not proved is still brought back: a login that stays closed is an outage, and nobody asked for a fence.
    const lifted = await liftFences(fences, cause, watcher, await ownWishes(fences, cause), async () => undefined)
    await tellRotated(world, lifted, cause)
    return worst(applied, lifted)
  })
}

async function requireNoFence(fences: readonly Fence[]): Promise<void> {
  for (const fence of fences) {
    const { state, cause } = await fence.status()
    if (state === 'lifted' || cause?.reason.startsWith(ROTATION) === true) continue
    throw new HomeregionError('lift-refused', {
      fact: `fence ${fence.name} of ${fence.region} is ${state}${cause === null ? '' : ` since ${cause.by} (${cause.reason})`}: a rotation would lift it`,
      state: 'Nothing was changed.',
      next: `homeregion fence status ${fence.region}`,
    })
  }
}

/**
 * The wishes that this rotation's own apply left in the region's record, read there: the control plane does not hear of an emergency while it is
 * down. Somebody who wanted one of these fences to stand meanwhile keeps it.
 */
async function ownWishes(fences: readonly Fence[], cause: FenceCause): Promise<SeenWishes> {
  const own = fences.map(async fence => {
    const { asked, cause: now } = await fence.status()
    const ours = now?.by === cause.by && now.reason === cause.reason && now.runId === cause.runId
    return asked !== null && ours ? [[fence.name, asked] as const] : []
  })
  return new Map((await Promise.all(own)).flat())
}

async function tellRotated(world: World, lifted: readonly FenceResult[], cause: FenceCause): Promise<void> {
  const entry = newEntry(world.holder.host)
  const done = lifted.filter(r => r.error === null)
  const of = (r: FenceResult) => ({ region: r.fence.region, fence: r.fence.name, kind: r.fence.kind, event: 'rotated' as const })
  await world.fenceJournal.keep(
    done.map(r => entry({ ...of(r), by: cause.by, runId: null, reason: cause.reason, detail: { holds: r.lines } })),
  )
  await world.fenceJournal.handOver(true)
}

/** One result a fence: how opening it ended, and where closing it went wrong, that, with what was read back after it was opened again. */
function worst(applied: readonly FenceResult[], lifted: readonly FenceResult[]): readonly FenceResult[] {
  return lifted.map(l => {
    const error = applied.find(r => r.fence.name === l.fence.name)?.error ?? null
    if (l.error !== null || error === null) return l
    const opened = new HomeregionError(
      error.code,
      {
        fact: `not rotated: ${error.text.fact}`,
        state: `The logins were opened again: ${l.lines.join('; ')}.`,
        next: `homeregion credentials rotate ${l.fence.region}, once that is mended`,
      },
      { cause: error },
    )
    return { ...l, error: opened, lines: [] }
  })
}
