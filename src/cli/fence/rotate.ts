import { newEntry } from '../../adapters/files/fence-entry.ts'
import { suggestion } from '../../domain/did-you-mean.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { Fence, FenceCause } from '../../domain/fence.ts'
import { applyFences, type FenceResult, liftFences } from '../../engine/region-fences.ts'
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
    // What was not proved is still brought back: a login that stays closed is an outage, and nobody asked for a fence.
    const lifted = await liftFences(fences, cause, watcher, async fence => await requireOurs(world, fence, cause))
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

/** Somebody may have wanted this very fence to stand while we rotated: the last to begin with it has to be us. */
async function requireOurs(world: World, fence: Fence, cause: FenceCause): Promise<void> {
  await world.fenceJournal.handOver(true)
  const filter = { region: fence.region, fence: fence.name, events: ['apply-started'] as const, limit: 1 }
  const [last] = await world.controlPlane.fenceLog(filter)
  if (last?.by === cause.by && last.reason === cause.reason) return
  throw new HomeregionError('lift-refused', {
    fact: `fence ${fence.name} of ${fence.region} was applied by ${last?.by ?? 'somebody'} meanwhile (${last?.reason ?? 'no reason'})`,
    state: 'The secrets are new, and the logins stay closed.',
    next: `homeregion fence lift ${fence.region} --fence ${fence.name} --reason …`,
  })
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

/** One result a fence: how closing it ended where that went wrong, else how opening it did. */
function worst(applied: readonly FenceResult[], lifted: readonly FenceResult[]): readonly FenceResult[] {
  return lifted.map(l => {
    const a = applied.find(r => r.fence.name === l.fence.name)
    return l.error === null && a !== undefined && a.error !== null ? a : l
  })
}
