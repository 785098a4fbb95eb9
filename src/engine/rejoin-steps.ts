import { HomeregionError } from '../domain/errors.ts'
import { exileFenceReason } from '../domain/failover.ts'
import { BOUNDARY_FENCE, type FenceCause } from '../domain/fence.ts'
import { showKey } from '../domain/key.ts'
import type { RejoinKind } from '../domain/runbook-lint-rejoin.ts'
import { requireLiftAllowed, unknownOf } from './lift-permission.ts'
import { batches, byHome, itemsOf, listLost, requireAnswers, type Taken } from './lost-keys.ts'
import { applyFences, endOf } from './region-fences.ts'
import { changedMeanwhile, exileOf, type Rejoining } from './rejoining.ts'
import { undecidedRuns } from './undecided-runs.ts'

/** Why the boundary's fence stands; by this the same command knows, after a crash, that the fence is its own to lift. */
const REASON = 'rejoin'
/** Keys that the region's boundary is told of in one round trip. */
const FOLLOWING = 250

/** What homeregion does itself, each so that it can be made again. */
export const FIXED_STEPS: Readonly<Record<RejoinKind, (rejoining: Rejoining) => Promise<void>>> = {
  fence: fenceFirst,
  follow: followAll,
  list: listAll,
  decide: requireDecided,
  level: levelAll,
  lift: liftOwn,
  end: async ({ parts: { controlPlane, leased, tell }, region, reason }) => {
    // Dying before it: the region is open for the keys that were always its own, and still no target; the same command ends it.
    await controlPlane.endExile(region, reason)
    tell(`${region} is back: it may own keys again${leased ? ', and its lease may be granted' : ''}`)
  },
}

async function fenceFirst({ parts, region, reason }: Rejoining): Promise<void> {
  const { controlPlane, fences, watcher, by, fault, tell } = parts
  const exile = await exileOf(parts, region)
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
async function followAll({ parts, region, taken }: Rejoining): Promise<void> {
  const { region: database, shared, fault, tell } = parts
  if (shared) return
  const keys = (await taken()).map(k => ({ key: k.key, homeRegion: k.home, epoch: k.homeEpoch }))
  for (const batch of batches(keys, FOLLOWING)) {
    const rows = new Map((await database(region).followMany(batch)).map(row => [row.key, row]))
    const still = batch.find(({ key, homeRegion }) => rows.get(key)?.homeRegion !== homeRegion || rows.get(key)?.writable !== false)
    if (still !== undefined)
      throw new HomeregionError('needs-human', {
        fact: `${region} does not say of ${showKey(still.key)} that it is ${still.homeRegion}'s`,
        state: `${region} is fenced as a whole.`,
        next: 'homeregion doctor',
      })
    await fault('rejoin:followed')
  }
  tell(`${keys.length} keys follow their new home in ${region}'s boundary, as read back`)
}

async function listAll({ parts, region, taken }: Rejoining): Promise<void> {
  const { controlPlane, shared, fault, tell } = parts
  if ((await exileOf(parts, region)).done.includes('level')) return
  // Again each time: what was found before stays, and a crash in the middle has left some of it unlisted.
  const found = shared ? 0 : await listLost(parts, region, await taken())
  await fault('rejoin:found')
  await controlPlane.noteExile(region, 'listed')
  const { undecided } = await exileOf(parts, region)
  const decided = found === 0 ? '' : undecided === 0 ? ', all decided' : `, ${undecided} undecided`
  tell(`${found} ${found === 1 ? 'write' : 'writes'} that only one side has on the list${decided}`)
  await fault('rejoin:listed')
}

async function requireDecided({ parts, region }: Pick<Rejoining, 'parts' | 'region'>): Promise<void> {
  const exile = await exileOf(parts, region)
  if (exile.undecided === 0) return
  const runs = await undecidedRuns(parts.controlPlane, exile)
  throw new HomeregionError('check-refused', {
    fact: `${exile.undecided} ${exile.undecided === 1 ? 'write that only one side has is' : 'writes that only one side has are'} not decided (${runs.length === 1 ? 'run' : 'runs'} ${runs.join(', ')})`,
    state: `${region} is fenced, as read back; of these writes nothing was replaced there.`,
    next: `homeregion reconcile ${runs[0] ?? exile.runIds.at(-1) ?? 'RUN'} --undecided`,
  })
}

async function levelAll({ parts, region, taken }: Rejoining): Promise<void> {
  const { controlPlane, recovery, shared, fault, tell } = parts
  if ((await exileOf(parts, region)).done.includes('level')) return
  let [rows, done] = [0, 0]
  const keys = shared ? [] : await taken()
  if (!shared) await requireAnswers(parts.region, region, keys)
  const decided = await decidedOf(parts, keys)
  for (const { home, keys: batch } of byHome(keys)) {
    const { levelled, found } = await recovery.level(region, home, batch, decided)
    // It came after the list was made. Nothing of this batch was replaced, and what is level already stays so.
    if (found.length > 0) {
      await listLost(parts, region, batch)
      await requireDecided({ parts, region })
      throw changedMeanwhile(region)
    }
    rows += levelled.reduce((sum, k) => sum + k.rows, 0)
    done += levelled.length
    await fault('rejoin:levelled')
  }
  if (!shared) tell(`${done} keys are level: ${rows} rows, the digests of both sides equal`)
  await controlPlane.noteExile(region, 'level')
  await fault('rejoin:level')
}

/** Items of these keys' runs that were decided about: only what they stand for may be replaced. */
async function decidedOf({ controlPlane }: Rejoining['parts'], keys: readonly Taken[]): Promise<ReadonlySet<string>> {
  const decided = new Set<string>()
  for (const runId of new Set(keys.map(k => k.runId)))
    for await (const item of itemsOf(controlPlane, runId, {})) if (item.decision !== null) decided.add(item.id)
  return decided
}

/** Takes back what this command put up; a fence that somebody else put up before stays, and is named. */
async function liftOwn(rejoining: Rejoining): Promise<void> {
  const { parts, region, reason, taken } = rejoining
  const { controlPlane, fences, region: database, others, defaultHome, shared, fault, by, tell } = parts
  // Once more, now that nobody can have written: what has appeared since is on the list, takes `level` back, and keeps the fence.
  if (!shared) await listLost(parts, region, await taken())
  await requireDecided(rejoining)
  const exile = await exileOf(parts, region)
  if (!exile.done.includes('level')) throw changedMeanwhile(region)
  for (const fence of fences(region)) {
    const status = await fence.status()
    if (status.state === 'lifted') continue
    // An agent that saw the region at the same moment as this command may have asked last.
    const why = status.cause?.reason ?? ''
    const own = fence.name === BOUNDARY_FENCE && (why.startsWith(`${REASON}:`) || why === exileFenceReason(exile))
    if (!own) {
      tell(
        `fence ${fence.name} of ${region} is ${status.state}${status.cause === null ? '' : ` (${status.cause.by}: ${status.cause.reason})`}: homeregion fence lift ${region}`,
      )
      continue
    }
    const allowed = await requireLiftAllowed({
      controlPlane,
      database: database(region),
      region,
      others: others.map(database),
      asTarget: true,
      defaultHome,
    })
    const lines = await fence.lift({ reason: `${REASON}: ${reason}`, by, runId: null }, status.asked)
    await fault('rejoin:lifted')
    tell(`fence ${fence.name} of ${region} is lifted: ${lines.join('; ')}${unknownOf(allowed)}`)
  }
}
