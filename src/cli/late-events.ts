import type { Config } from '../domain/config.ts'
import { isHomeregionError } from '../domain/errors.ts'
import type { Exile } from '../domain/failover.ts'
import type { World } from './context.ts'

/** Events that came too late for a region and that nobody has decided about; null: the region could not be asked. */
export type LateEvents = {
  readonly region: string
  readonly undecided: number | null
  readonly why: string | null
  /** The command by which they are decided about. */
  readonly next: string
}

/** A status is read while a region is dark: what it keeps is worth this much of the reader's time. */
const WAIT_MS = 1_500

/**
 * Of each region, those that are not zero. Only a forced failover leaves events that come too late, so where there never was one nobody is asked, and
 * status stays with what the control plane says.
 */
export async function lateEvents(
  world: Pick<World, 'region'>,
  config: Pick<Config, 'topology' | 'regions'>,
  exiles: readonly Exile[],
): Promise<readonly LateEvents[]> {
  if (exiles.length === 0 || config.topology === 'shared') return []
  // Open ones first: while a region is in exile, its return lists them.
  const [exile] = exiles
  const next = exile?.endedAt === null ? `homeregion rejoin ${exile.region}` : `homeregion reconcile ${exile?.runIds.at(-1) ?? 'RUN'}`
  const asked = await Promise.all(config.regions.map(async ({ name }) => ({ region: name, next, ...(await undecided(world, name)) })))
  return asked.filter(late => late.undecided !== 0)
}

async function undecided(world: Pick<World, 'region'>, region: string): Promise<Pick<LateEvents, 'undecided' | 'why'>> {
  let timer: NodeJS.Timeout | undefined
  const patience = new Promise<Pick<LateEvents, 'undecided' | 'why'>>(resolve => {
    timer = setTimeout(() => {
      resolve({ undecided: null, why: `no answer within ${WAIT_MS} ms` })
    }, WAIT_MS)
  })
  const asked = world
    .region(region)
    .quarantineCount()
    .then(
      count => ({ undecided: count.undecided, why: null }),
      (error: unknown) => ({ undecided: null, why: isHomeregionError(error) ? error.text.fact : String(error) }),
    )
  return await Promise.race([asked, patience]).finally(() => clearTimeout(timer))
}
