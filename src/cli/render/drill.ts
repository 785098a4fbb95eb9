import { formatMs } from '../../domain/duration.ts'
import type { Drill } from '../../domain/failover.ts'

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

function agoText(ms: number): string {
  const age = Math.max(0, ms)
  if (age >= 2 * DAY_MS) return `${Math.floor(age / DAY_MS)} days`
  if (age >= 2 * HOUR_MS) return `${Math.floor(age / HOUR_MS)} hours`
  return age >= 120_000 ? `${Math.floor(age / 60_000)} minutes` : `${Math.floor(age / 1000)} s`
}
