import { formatMs } from '../../domain/duration.ts'
import { HomeregionError } from '../../domain/errors.ts'
import type { ControlPlane } from '../../domain/ports.ts'
import type { Engine } from '../../engine/context.ts'
import { openExile } from '../../engine/lost-keys.ts'
import { describeContact, isOwn, reachesDatabase, tryRegion, type Vantage } from '../../engine/vantage.ts'
import { planCommand } from './command.ts'

type Regions = { readonly source: string; readonly target: string }

/** Said before anything else is asked for: nothing that is typed afterwards could help. @throws `region-exiled` */
export async function requireNoExile(controlPlane: Pick<ControlPlane, 'exiles'>, target: string): Promise<void> {
  const exile = await openExile(controlPlane, target)
  if (exile === null) return
  throw new HomeregionError('region-exiled', {
    fact: `${target} is in exile since ${exile.since}: it was failed over and is not back, so it can take no key`,
    state: 'Nothing was changed.',
    next: `homeregion rejoin ${target} --reason TEXT`,
  })
}

/** Before a planned move of everything, which a dark region would refuse check by check. @throws `region-unreachable` */
export async function requireAnswer(engine: Engine, { source, target }: Regions, patienceMs: number): Promise<void> {
  const own = await tryRegion(engine, source, patienceMs)
  if (reachesDatabase(own)) return
  throw new HomeregionError('region-unreachable', {
    fact: `${source} does not answer: a planned move needs it; a forced one may lose what it alone has`,
    state: 'Nothing was changed.',
    next: planCommand({ source, target }),
  })
}

/**
 * Somebody has reached the source lately. Where this host has not, only time makes it dark; and where the target is the dark one, it was the
 * other way round that was meant.
 */
export async function sourceAnswers(
  engine: Engine,
  { source, target }: Regions,
  vantage: Vantage,
  times: { readonly darkAfterMs: number; readonly patienceMs: number },
): Promise<HomeregionError> {
  const { contact } = vantage
  const seen = contact === null ? '' : describeContact(contact)
  const fact = `${source} is not dark: ${seen} (policy.darkAfter is ${formatMs(times.darkAfterMs)})`
  const refused = (why: string, next: string, more = '') =>
    new HomeregionError(
      'source-answers',
      { fact: `${fact}, ${why}`, state: `Nothing was changed.${more}`, next },
      { fields: { sights: vantage.sights } },
    )
  if (!vantage.sights.some(s => isOwn(s) && s.what === 'database' && s.lastContactAgeMs === 0)) {
    const leftMs = Math.max(0, times.darkAfterMs - (contact?.lastContactAgeMs ?? 0))
    return refused(
      'though this host does not reach it',
      planCommand({ source, target }),
      ` It is dark in ${formatMs(leftMs)}, if nobody reaches it until then.`,
    )
  }
  if (!reachesDatabase(await tryRegion(engine, target, times.patienceMs)))
    return refused(`and it is ${target} that does not answer`, planCommand({ source: target, target: source }))
  return refused('so nothing need be lost', `homeregion failover --from ${source} --to ${target}   (without --force)`)
}
