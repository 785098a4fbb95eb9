import { HomeregionError } from '../domain/errors.ts'
import type { Exile } from '../domain/failover.ts'
import type { Fence } from '../domain/fence.ts'
import { BOUNDARY_FENCE, type FenceCause } from '../domain/fence.ts'
import { showKey } from '../domain/key.ts'
import type { FaultPoint } from '../domain/ports.ts'
import { requireLiftAllowed } from './lift-permission.ts'
import { batches, byHome, type ListParts, listLost, notInExile, openExile, type Taken, takenKeys } from './lost-keys.ts'
import { applyFences, endOf, type FenceWatcher } from './region-fences.ts'

export type RejoinParts = ListParts & {
  readonly fences: (region: string) => readonly Fence[]
  readonly fault: FaultPoint
  readonly watcher: FenceWatcher
  /** Topology `shared`: one database holds every region's rows, so there is nothing to list and nothing to bring level. */
  readonly shared: boolean
  readonly defaultHome: string | null
  readonly by: string
  /** What was done and read back, one line each, as it happens. */
  readonly tell: (line: string) => void
}

/** Why the boundary's fence stands; by this the same command knows, after a crash, that the fence is its own to lift. */
const REASON = 'rejoin'
/** Calls under way at once towards the region's boundary. */
const FOLLOWING = 50

/**
 * Brings a region back that was failed over: fenced, told whom its keys belong to, listed, decided about, level, open again. Each step is on
 * record in the control plane when it is done, and each can be made again, so that the same command goes on wherever it was ended.
 * @throws `check-refused` while items are not decided, and whatever keeps a step from being done
 */
export async function rejoin(parts: RejoinParts, region: string, reason: string): Promise<void> {
  const { controlPlane, tell } = parts
  // Asked before the fence: a region that is in no exile serves its keys, and a mistyped name must not stop it.
  const exile = await openExile(controlPlane, region)
  if (exile === null) throw notInExile(region)
  await fenceFirst(parts, exile, reason)
  const taken = await takenKeys(controlPlane, exile)
  if (!parts.shared) await followAll(parts, region, taken)
  if (!exile.done.includes('level')) await listAndLevel(parts, exile, taken)
  await liftOwn(parts, region, reason)
  // Dying before it: the region is open for the keys that were always its own, and still no target; the same command ends it.
  await controlPlane.endExile(region, reason)
  tell(`${region} is back: it may own keys again, and its lease may be granted`)
}

async function fenceFirst({ controlPlane, fences, watcher, by, fault, tell }: RejoinParts, exile: Exile, reason: string): Promise<void> {
  const { region } = exile
  const boundary = fences(region).filter(f => f.name === BOUNDARY_FENCE)
  const cause: FenceCause = { reason: `${REASON}: ${reason}`, by, runId: exile.runIds.at(-1) ?? null }
  const results = await applyFences(boundary, cause, watcher)
  const end = endOf(results, boundary.length)
  // Its error names the sessions that wrote and the prepared transactions that are still open.
  if (end !== null) throw end
  await fault('rejoin:fenced')
  if (!exile.done.includes('fenced')) await controlPlane.noteExile(region, 'fenced')
  tell(`${region} is fenced: no key may be written there, as read back and proved`)
}

/** Each key is refused by its own row as well, so that lifting the fence of the whole region opens none of them. */
async function followAll({ region: database, fault, tell }: RejoinParts, region: string, taken: readonly Taken[]): Promise<void> {
  const here = database(region)
  let told = 0
  for (const batch of batches(taken, FOLLOWING)) {
    await Promise.all(
      batch.map(async ({ key, home, homeEpoch }) => {
        const row = await here.read(key)
        if (row?.homeRegion === home && row.epoch === homeEpoch) return
        const now = await here.follow(key, home, homeEpoch, row?.token ?? 0)
        if (now.writable || now.homeRegion === region)
          throw new HomeregionError('needs-human', {
            fact: `${region} still holds ${showKey(key)} as its own`,
            state: `${region} is fenced as a whole.`,
            next: 'homeregion doctor',
          })
        told += 1
      }),
    )
    await fault('rejoin:followed')
  }
  tell(`${taken.length} keys follow their new home in ${region}'s boundary, as read back (${told} were told now)`)
}

async function listAndLevel(parts: RejoinParts, exile: Exile, taken: readonly Taken[]): Promise<void> {
  const { controlPlane, recovery, shared, fault, tell } = parts
  const { region } = exile
  // Again each time: what was found before stays, and a crash in the middle has left some of it unlisted.
  const found = shared ? 0 : await listLost(parts, region, taken)
  await fault('rejoin:found')
  await controlPlane.noteExile(region, 'listed')
  tell(`${found} writes that only one side has are on the list`)
  await fault('rejoin:listed')
  await requireDecided(parts, region)
  if (!shared) {
    let rows = 0
    let done = 0
    for (const { home, keys } of byHome(taken)) {
      const levelled = await recovery.level(region, home, keys)
      rows += levelled.reduce((sum, k) => sum + k.rows, 0)
      done += levelled.length
      await fault('rejoin:levelled')
    }
    tell(`${done} keys are level: ${rows} rows, the digests of both sides equal`)
  }
  await controlPlane.noteExile(region, 'level')
  await fault('rejoin:level')
}

async function requireDecided({ controlPlane }: RejoinParts, region: string): Promise<void> {
  const exile = await openExile(controlPlane, region)
  if (exile === null || exile.undecided === 0) return
  throw new HomeregionError('check-refused', {
    fact: `${exile.undecided} writes that only one side has are not decided (runs ${exile.runIds.join(', ')})`,
    state: `${region} is fenced, as read back; nothing there was replaced.`,
    next: `homeregion reconcile ${exile.runIds.at(-1) ?? 'RUN'}, then homeregion rejoin ${region} again`,
  })
}

/** Takes back what this command put up; a fence that somebody else put up before stays, and is named. */
async function liftOwn(parts: RejoinParts, region: string, reason: string): Promise<void> {
  const { controlPlane, fences, region: database, defaultHome, fault, by, tell } = parts
  for (const fence of fences(region)) {
    const status = await fence.status()
    if (status.state === 'lifted') continue
    const own = fence.name === BOUNDARY_FENCE && status.cause?.reason.startsWith(`${REASON}:`) === true
    if (!own) {
      tell(
        `fence ${fence.name} of ${region} is ${status.state}${status.cause === null ? '' : ` (${status.cause.by}: ${status.cause.reason})`}: homeregion fence lift ${region}`,
      )
      continue
    }
    await requireLiftAllowed({ controlPlane, database: database(region), region, asTarget: true, defaultHome })
    const lines = await fence.lift({ reason: `${REASON}: ${reason}`, by, runId: null }, status.asked)
    await fault('rejoin:lifted')
    tell(`fence ${fence.name} of ${region} is lifted: ${lines.join('; ')}`)
  }
}
