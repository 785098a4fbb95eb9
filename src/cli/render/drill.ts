import { formatMs } from '../../domain/duration.ts'
import { isJsonObject, type Json } from '../../domain/evidence.ts'
import type { Drill, DrillResult } from '../../domain/failover.ts'
import { showKey } from '../../domain/key.ts'
import type { OwnershipRecord } from '../../domain/ownership.ts'
import type { Leg } from '../drill/leg.ts'
import { counted } from './words.ts'

const DAY_MS = 86_400_000
const HOUR_MS = 3_600_000

/** `nowMs` is this host's clock: for reading only, nothing is decided by it. */
export function drillLine(drill: Drill, nowMs: number): string {
  const { source, target, outcome, recoveryMs, gaps, duplicates, detail, at } = drill
  const figures = [recoveryMs === null ? 'no write at the target' : formatMs(recoveryMs), consumers({ gaps, duplicates, detail })].join(
    ', ',
  )
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
    readonly keys: readonly string[]
  },
): string {
  const { outcome, source, target, keys, recoveryMs, objectiveMs } = result
  const { there, back, wanted, found } = about
  const away = (there.outcome === 'moved' || back !== null) && back?.outcome !== 'moved'
  return [
    `drill ${outcome}: ${counted(keys, 'canary key')} ${source} -> ${target}, by a planned move`,
    `recovered  ${recoveryMs === null ? 'no write was admitted at the target' : `${formatMs(recoveryMs)} to the first write at ${target}`} (objective ${formatMs(objectiveMs ?? 0)})`,
    `consumers  ${consumers(result)}${wroteNothing(result) ? '' : ` at ${target}`}`,
    ...(back?.outcome === 'moved' ? [`returned   to ${source}${back.recoveryMs === null ? '' : ` in ${formatMs(back.recoveryMs)}`}`] : []),
    ...[there, ...(back === null ? [] : [back])].flatMap(l => (l.why === null ? [] : [`why        ${l.why}`])),
    ...whereabouts(found),
    ...(away && !wanted ? [`state: the canary keys are ${target}'s, as asked for`] : []),
    ...nextOf(result, about, away),
  ].join('\n')
}

/** A drill that failed names what helps: the way home first, then what the step that failed named. */
function nextOf(
  { outcome, detail }: DrillResult,
  { there, back, wanted, keys }: { there: Leg; back: Leg | null; wanted: boolean; keys: readonly string[] },
  away: boolean,
): readonly string[] {
  if (away && wanted && outcome !== 'pre-empted') return [`next:  homeregion drill --keys ${keys.join(',')}   (brings them home first)`]
  if (outcome !== 'failed') return []
  const [run] = runsOf(detail)
  const named = [back?.next, there.next].find(next => typeof next === 'string')
  return [`next:  ${named ?? (run === undefined ? 'homeregion doctor' : `homeregion run show ${run}`)}`]
}

function runsOf(detail: Json): readonly string[] {
  const runs = isJsonObject(detail) ? detail['runs'] : null
  return Array.isArray(runs) ? runs.filter((run): run is string => typeof run === 'string') : []
}

/** None missed of none is no rehearsal of them. */
function consumers({ gaps, duplicates, detail }: Pick<DrillResult, 'gaps' | 'duplicates' | 'detail'>): string {
  if (wroteNothing({ detail })) return 'nothing was written: consumers not exercised'
  return `${gaps ?? 'unknown'} gaps, ${duplicates ?? 'unknown'} duplicates`
}

function wroteNothing({ detail }: Pick<DrillResult, 'detail'>): boolean {
  return isJsonObject(detail) && detail['writes'] === 0
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
