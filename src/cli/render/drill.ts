import { formatMs } from '../../domain/duration.ts'
import type { Drill, DrillResult } from '../../domain/failover.ts'
import { showKey } from '../../domain/key.ts'
import type { OwnershipRecord } from '../../domain/ownership.ts'
import type { Leg } from '../drill/leg.ts'

const DAY_MS = 86_400_000
const HOUR_MS = 3_600_000

/** `nowMs` is this host's clock: for reading only, nothing is decided by it. */
export function drillLine(drill: Drill, nowMs: number): string {
  const { source, target, outcome, recoveryMs, gaps, duplicates, at } = drill
  const figures = [
    recoveryMs === null ? 'no write at the target' : formatMs(recoveryMs),
    `${gaps ?? 'unknown'} gaps`,
    `${duplicates ?? 'unknown'} duplicates`,
  ].join(', ')
  const how = outcome === 'passed' ? '' : `${outcome.toUpperCase()}: `
  return `${source} -> ${target}: last rehearsed ${agoText(nowMs - Date.parse(at))} ago: ${how}${figures}`
}

export function drillText(
  result: DrillResult,
  about: {
    readonly there: Leg
    readonly back: Leg | null
    /** The way back was asked for. */
    readonly wanted: boolean
    /** Where the keys are now, read back; empty where nobody need ask. */
    readonly found: readonly OwnershipRecord[]
  },
): string {
  const { outcome, source, target, keys, recoveryMs, objectiveMs, gaps, duplicates } = result
  const { there, back, wanted, found } = about
  const away = there.outcome === 'moved' && back?.outcome !== 'moved'
  return [
    `drill ${outcome}: ${keys} canary keys ${source} -> ${target}, by a planned move`,
    `recovered  ${recoveryMs === null ? 'no write was admitted at the target' : `${formatMs(recoveryMs)} to the first write at ${target}`} (objective ${formatMs(objectiveMs ?? 0)})`,
    `consumers  ${gaps ?? 'unknown'} gaps, ${duplicates ?? 'unknown'} duplicates at ${target}`,
    ...(back?.outcome === 'moved' ? [`returned   to ${source}${back.recoveryMs === null ? '' : ` in ${formatMs(back.recoveryMs)}`}`] : []),
    ...[there, ...(back === null ? [] : [back])].flatMap(l => (l.why === null ? [] : [`why        ${l.why}`])),
    ...whereabouts(found),
    ...(away && !wanted ? [`state: the canary keys are ${target}'s, as asked for`] : []),
    ...(away && wanted && outcome !== 'pre-empted' ? ['next:  homeregion status'] : []),
  ].join('\n')
}

const KEYS_SHOWN = 10

function whereabouts(found: readonly OwnershipRecord[]): readonly string[] {
  const lines = found.slice(0, KEYS_SHOWN).map(r => `${showKey(r.key)} is ${r.state}, home ${r.homeRegion}, epoch ${r.epoch}`)
  const more = found.length > KEYS_SHOWN ? `; +${found.length - KEYS_SHOWN} more` : ''
  return lines.length === 0 ? [] : [`state: ${lines.join('; ')}${more} (read back from the control plane)`]
}

function agoText(ms: number): string {
  const age = Math.max(0, ms)
  if (age >= 2 * DAY_MS) return `${Math.floor(age / DAY_MS)} days`
  if (age >= 2 * HOUR_MS) return `${Math.floor(age / HOUR_MS)} hours`
  return age >= 120_000 ? `${Math.floor(age / 60_000)} minutes` : `${Math.floor(age / 1000)} s`
}
