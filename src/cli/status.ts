import { HomeregionError } from '../domain/errors.ts'
import type { Exile } from '../domain/failover.ts'
import type { LoggedFence } from '../domain/fence.ts'
import { OPEN_STATES, type Run } from '../domain/journal.ts'
import { parseKey, showKey } from '../domain/key.ts'
import type { ControlPlane } from '../domain/ports.ts'
import type { CliContext } from './context.ts'
import { reconcile } from './fence/tell.ts'
import { lateEvents } from './late-events.ts'
import { type RegionSeen, regionsSeen } from './regions-seen.ts'
import type { ForcedStatus } from './render/exile.ts'
import { regionReasons, type StatusRegion } from './render/regions-seen.ts'
import { reasonsOf, type Status, statusJson, statusPaste, statusText } from './render/status.ts'
import type { AwaitedConsent, RegionLease, StandingFence } from './render/status-lines.ts'

const NOT_ACTIVE_LIMIT = 200
const MOVING = ['DRAINING', 'FENCED', 'CATCH_UP'] as const

export async function status(context: CliContext, keys: readonly string[], withExitCode: boolean): Promise<void> {
  const format = context.format('json', 'paste')
  const found = await readStatus(context, keys.map(parseKey))
  context.out.line({ text: () => statusText(found, context.out), json: () => statusJson(found), paste: () => statusPaste(found) }[format]())
  if (withExitCode && found.degraded) context.exit('changes')
}

async function readStatus(context: CliContext, asked: readonly string[]): Promise<Status> {
  const { config } = await context.settings()
  const world = await context.connect()
  const { controlPlane } = world
  // What an emergency left on this machine belongs to the picture.
  await reconcile(context, world)
  const asOf = new Date().toISOString()
  const exiled = controlPlane.exiles()
  const [counts, openRuns, keys, history, told, leaseStates, sights, known, drills, unfinished, late] = await Promise.all([
    controlPlane.countOwnership(),
    controlPlane.runs({ states: OPEN_STATES, limit: 50 }),
    asked.length > 0
      ? controlPlane.ownership(asked)
      : Promise.all(MOVING.map(state => controlPlane.listOwnership({ state, limit: NOT_ACTIVE_LIMIT }))).then(lists => lists.flat()),
    Promise.all(asked.map(key => controlPlane.history(key))).then(lists => lists.flat()),
    controlPlane.fencesTold(),
    controlPlane.leaseStates(),
    controlPlane.sights(),
    exiled,
    controlPlane.lastDrills(),
    controlPlane.unfinishedDrills(),
    exiled.then(async found => await lateEvents(world, config, found)),
  ])
  const missing = asked.filter(key => !keys.some(r => r.key === key))
  if (missing.length > 0)
    throw new HomeregionError('unknown-key', { fact: `not registered: ${missing.map(showKey).join(', ')}`, next: 'homeregion key list' })
  const runs = asked.length > 0 ? openRuns.filter(run => run.moves.some(m => asked.includes(m.key))) : openRuns
  const leases = config.regions.flatMap((region): readonly RegionLease[] => {
    if (region.lease === null) return []
    const { name, lease } = region
    return [{ region: name, onAgentOutage: lease.onAgentOutage, state: leaseStates.find(s => s.region === name) ?? null }]
  })
  const open = known.filter(exile => exile.endedAt === null)
  const seen = regionsSeen(config, sights, leaseStates)
  const waiting = runs.filter(run => run.intent === 'failover')
  const consents = await Promise.all(waiting.map(run => awaitedConsent(controlPlane, run.id)))
  const approvals = (await Promise.all(waiting.map(run => controlPlane.approvals(run.id)))).flat()
  const found: Omit<Status, 'degraded'> = {
    service: config.service,
    asOf,
    counts,
    keys,
    openRuns: runs,
    history,
    fences: standing(told, counts, openRuns, open),
    leases,
    regions: seen.map(region => ({ ...region, next: nextOf(region, seen, { counts, openRuns, exiles: open }) })),
    darkAfterMs: config.policy.darkAfterMs,
    exiles: await forcedStatus(controlPlane, open, seen),
    approvals,
    consents: consents.filter(c => c !== null),
    drills,
    unfinished,
    late,
  }
  return { ...found, degraded: reasonsOf(found).length > 0 }
}

/** A fence that stands as it should needs nobody; one that stops keys, and that no exile and no run out of the region explains, was forgotten or is new. */
function standing(
  told: readonly LoggedFence[],
  counts: Status['counts'],
  openRuns: readonly Run[],
  exiles: readonly Exile[],
): readonly StandingFence[] {
  return told
    .filter(fence => fence.event !== 'lifted' && fence.event !== 'rotated')
    .map(fence => {
      const explained =
        exiles.some(e => e.region === fence.region) || openRuns.some(run => run.moves.some(move => move.source === fence.region))
      return { ...fence, stops: fence.event !== 'applied' || explained ? 0 : keysAt(counts, fence.region) }
    })
}

function keysAt(counts: Status['counts'], region: string): number {
  return counts.filter(c => c.homeRegion === region).reduce((sum, c) => sum + c.keys, 0)
}

/** What a region that somebody has to look at asks for; null where its exile or an open run says what comes next. */
function nextOf(
  { region, state, ...seen }: RegionSeen,
  all: readonly RegionSeen[],
  about: { counts: Status['counts']; openRuns: readonly Run[]; exiles: readonly Exile[] },
): StatusRegion['next'] {
  const { counts, openRuns, exiles } = about
  if (regionReasons({ region, state, ...seen }).length === 0) return null
  if (exiles.some(e => e.region === region) || openRuns.some(r => r.intent === 'failover' && r.moves.some(m => m.source === region)))
    return null
  // Of all regions at once: said once.
  if (state === 'not-looked' && all[0]?.region !== region) return null
  const target = all.find(r => r.region !== region && r.state === 'reached' && !exiles.some(e => e.region === r.region))
  if (state !== 'dark' || target === undefined || keysAt(counts, region) === 0) return 'homeregion doctor'
  return `homeregion plan failover --from ${region} --to ${target.region}`
}

/** What the last look for approvals of an open forced run said; null where it did not have to wait for any. */
async function awaitedConsent(controlPlane: ControlPlane, runId: string): Promise<AwaitedConsent | null> {
  const last = (await controlPlane.evidence(runId)).findLast(e => e.check === 'approved')
  if (last?.verdict !== 'fail' || typeof last.facts?.['of'] !== 'number') return null
  // By what is in force now: the run counts by that when it goes on.
  return { runId, policy: await controlPlane.approvalPolicy(runId) }
}

/** Regions that are not back. Those that are have their place in `run show`. */
async function forcedStatus(
  controlPlane: ControlPlane,
  open: readonly Exile[],
  seen: readonly RegionSeen[],
): Promise<readonly ForcedStatus[]> {
  return await Promise.all(
    open.map(async exile => {
      const failovers = (await controlPlane.forcedFailovers({ source: exile.region, limit: 20 })).filter(f =>
        exile.runIds.includes(f.runId),
      )
      const approvals = (await Promise.all(failovers.map(f => controlPlane.approvals(f.runId)))).flat()
      const state = seen.find(r => r.region === exile.region)?.state
      const answers = state === 'reached' ? true : state === 'dark' || state === 'missed' ? false : null
      return { exile, failovers, approvals, answers, lists: await controlPlane.reconcileCounts(exile.runIds) }
    }),
  )
}
