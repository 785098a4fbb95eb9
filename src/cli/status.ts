import { HomeregionError } from '../domain/errors.ts'
import type { Exile } from '../domain/failover.ts'
import { OPEN_STATES } from '../domain/journal.ts'
import { parseKey, showKey } from '../domain/key.ts'
import type { ControlPlane } from '../domain/ports.ts'
import type { CliContext } from './context.ts'
import { reconcile } from './fence/tell.ts'
import { lateEvents } from './late-events.ts'
import type { ForcedStatus } from './render/failover.ts'
import { type AwaitedConsent, leaseIsMissing, type RegionLease, type Status, statusJson, statusPaste, statusText } from './render/status.ts'

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
  const known = controlPlane.exiles()
  const [counts, openRuns, keys, history, told, leaseStates, observations, exiles, drills, late] = await Promise.all([
    controlPlane.countOwnership(),
    controlPlane.runs({ states: OPEN_STATES, limit: 50 }),
    asked.length > 0
      ? controlPlane.ownership(asked)
      : Promise.all(MOVING.map(state => controlPlane.listOwnership({ state, limit: NOT_ACTIVE_LIMIT }))).then(lists => lists.flat()),
    Promise.all(asked.map(key => controlPlane.history(key))).then(lists => lists.flat()),
    controlPlane.fencesTold(),
    controlPlane.leaseStates(),
    controlPlane.observations(),
    known.then(async found => await forcedStatus(controlPlane, found)),
    controlPlane.lastDrills(),
    known.then(async found => await lateEvents(world, config, found)),
  ])
  const missing = asked.filter(key => !keys.some(r => r.key === key))
  if (missing.length > 0)
    throw new HomeregionError('unknown-key', { fact: `not registered: ${missing.map(showKey).join(', ')}`, next: 'homeregion key list' })
  const runs = asked.length > 0 ? openRuns.filter(run => run.moves.some(m => asked.includes(m.key))) : openRuns
  const fences = told.filter(fence => fence.event !== 'lifted' && fence.event !== 'rotated')
  const leases = config.regions.flatMap((region): readonly RegionLease[] => {
    if (region.lease === null) return []
    const { name, lease } = region
    return [{ region: name, onAgentOutage: lease.onAgentOutage, state: leaseStates.find(s => s.region === name) ?? null }]
  })
  const agents = [...new Set(observations.map(o => o.observer))].map(agent => ({
    agent,
    lastLookAgeMs: Math.min(...observations.filter(o => o.observer === agent).map(o => o.ageMs)),
  }))
  const waiting = runs.filter(run => run.intent === 'failover')
  const consents = await Promise.all(waiting.map(run => awaitedConsent(controlPlane, run.id)))
  const approvals = (await Promise.all(waiting.map(run => controlPlane.approvals(run.id)))).flat()
  // A fence that stands as it should needs nobody.
  const degraded =
    runs.length > 0 ||
    keys.some(k => k.state !== 'ACTIVE') ||
    fences.some(fence => fence.event !== 'applied') ||
    leases.some(leaseIsMissing) ||
    exiles.length > 0 ||
    late.length > 0
  return {
    service: config.service,
    asOf,
    counts,
    keys,
    openRuns: runs,
    history,
    fences,
    leases,
    agents,
    exiles,
    approvals,
    consents: consents.filter(c => c !== null),
    drills,
    late,
    degraded,
  }
}

/** What the last look for approvals of an open forced run said; null where it did not have to wait for any. */
async function awaitedConsent(controlPlane: ControlPlane, runId: string): Promise<AwaitedConsent | null> {
  const last = (await controlPlane.evidence(runId)).findLast(e => e.check === 'approved')
  const of = last?.verdict === 'fail' ? last.facts?.['of'] : undefined
  return typeof of === 'number' ? { runId, of } : null
}

/** Regions that are not back. Those that are have their place in `run show`. */
async function forcedStatus(controlPlane: ControlPlane, exiles: readonly Exile[]): Promise<readonly ForcedStatus[]> {
  const open = exiles.filter(exile => exile.endedAt === null)
  return await Promise.all(
    open.map(async exile => {
      const failovers = (await controlPlane.forcedFailovers({ source: exile.region, limit: 20 })).filter(f =>
        exile.runIds.includes(f.runId),
      )
      const approvals = (await Promise.all(failovers.map(f => controlPlane.approvals(f.runId)))).flat()
      return { exile, failovers, approvals }
    }),
  )
}
