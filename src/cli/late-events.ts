import type { Config } from '../domain/config.ts'
import { isHomeregionError } from '../domain/errors.ts'
import type { Exile, ForcedFailover } from '../domain/failover.ts'
import type { ControlPlane } from '../domain/ports.ts'
import { eventIdOf } from '../engine/lost-keys.ts'
import { undecidedRuns } from '../engine/undecided-runs.ts'
import type { World } from './context.ts'

/** Events that came too late for a region and that nobody has decided about; null: the region could not be asked. */
export type LateEvents = {
  readonly region: string
  readonly undecided: number | null
  readonly why: string | null
  /** Of the first `of`, so many stand undecided on the list of `run` as well: one decision closes both. */
  readonly listed: { readonly events: number; readonly of: number; readonly run: string | null }
  /** The command by which they are decided about. */
  readonly next: string
}

type Parts = Pick<World, 'region'> & { readonly controlPlane: Pick<ControlPlane, 'forcedFailovers' | 'reconcileItems' | 'reconcileCounts'> }

/** A status is read while a region is dark: what it keeps is worth this much of the reader's time. */
const WAIT_MS = 1_500
/** Held against the list; of more it is said that they are more. */
const SAMPLE = 200
const ITEMS = 1_000
const FAILOVERS = 50

/**
 * Of each region, those that are not zero. Only a forced failover leaves events that come too late, so where there never was one nobody is asked, and
 * status stays with what the control plane says.
 */
export async function lateEvents(
  parts: Parts,
  config: Pick<Config, 'topology' | 'regions'>,
  exiles: readonly Exile[],
): Promise<readonly LateEvents[]> {
  if (exiles.length === 0 || config.topology === 'shared') return []
  const asked = await Promise.all(config.regions.map(async ({ name }) => ({ region: name, ...(await undecided(parts, name)) })))
  const late = asked.filter(found => found.undecided !== 0)
  if (late.length === 0) return []
  const failovers = await parts.controlPlane.forcedFailovers({ limit: FAILOVERS })
  return await Promise.all(
    late.map(async ({ region, undecided, why, events }) => ({
      region,
      undecided,
      why,
      ...(await onList(parts, exiles, failovers, events)),
    })),
  )
}

type Event = { readonly eventId: string; readonly key: string }
type Undecided = Pick<LateEvents, 'undecided' | 'why'> & { readonly events: readonly Event[] }

/** Whether they are the writes that a comparison has listed, and by which command they are decided. */
async function onList(
  { controlPlane }: Parts,
  exiles: readonly Exile[],
  failovers: readonly ForcedFailover[],
  events: readonly Event[],
): Promise<Pick<LateEvents, 'listed' | 'next'>> {
  // Newest first: the run that took the first of the keys, and the exile that it led to.
  const took = failovers.find(f => f.keys.some(k => k.key === events[0]?.key))
  const exile = exiles.find(e => took !== undefined && e.runIds.includes(took.runId)) ?? exiles[0]
  const ids = new Set(events.map(e => e.eventId))
  const lists = await Promise.all(
    (exile === undefined ? [] : await undecidedRuns(controlPlane, exile)).map(async run => {
      const items = await controlPlane.reconcileItems(run, { undecided: true, limit: ITEMS })
      return { run, events: items.filter(i => ids.has(eventIdOf(i) ?? '')).length }
    }),
  )
  const run = lists.find(l => l.events > 0)?.run ?? null
  const listed = { events: lists.reduce((sum, l) => sum + l.events, 0), of: events.length, run }
  if (run !== null) return { listed, next: `homeregion reconcile ${run} --undecided` }
  // While a region is in exile, its return lists them; afterwards the list looks for them itself.
  if (exile?.endedAt === null) return { listed, next: `homeregion rejoin ${exile.region} --reason TEXT` }
  return { listed, next: `homeregion reconcile ${took?.runId ?? exile?.runIds.at(-1) ?? 'RUN'}` }
}

async function undecided(parts: Parts, region: string): Promise<Undecided> {
  let timer: NodeJS.Timeout | undefined
  const patience = new Promise<Undecided>(resolve => {
    timer = setTimeout(() => {
      resolve({ undecided: null, why: `no answer within ${WAIT_MS} ms`, events: [] })
    }, WAIT_MS)
  })
  const ask = async (): Promise<Undecided> => {
    const database = parts.region(region)
    const { undecided } = await database.quarantineCount()
    const events = undecided === 0 ? [] : await database.quarantined({ undecided: true, limit: SAMPLE })
    return { undecided, why: null, events }
  }
  const asked = ask().catch(
    (error: unknown): Undecided => ({ undecided: null, why: isHomeregionError(error) ? error.text.fact : String(error), events: [] }),
  )
  return await Promise.race([asked, patience]).finally(() => clearTimeout(timer))
}
