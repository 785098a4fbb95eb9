import { formatMs, showDuration } from '../../domain/duration.ts'
import type { Sight } from '../../domain/loss.ts'
import type { RegionSeen } from '../regions-seen.ts'

/** `next`: the command that it asks for; null: none, or another line of the status has it. */
export type StatusRegion = RegionSeen & { readonly next: string | null }

export const NOBODY_LOOKS = 'no agent looks at the regions: whether they answer is not known here (homeregion doctor asks them)'

export function regionLines(seen: readonly StatusRegion[], darkAfterMs: number): readonly string[] {
  return seen.flatMap(region => [
    ...regionText(region, darkAfterMs),
    ...region.blind.map(s => `  not reached by ${s.vantage}: last ${age(s)}`),
    ...(region.kafka === null ? [] : [`  its Kafka is NOT REACHED: last ${contact(region.kafka)}`]),
    ...(region.next === null ? [] : [`  next: ${region.next}`]),
  ])
}

/** Why it needs somebody, for the headline; empty: it does not. */
export function regionReasons({ region, state, blind, kafka }: RegionSeen): readonly string[] {
  return [
    ...(state === 'dark' ? [`${region} is DARK`] : []),
    ...(state === 'missed' ? [`${region} is not reached`] : []),
    ...(state === 'not-looked' ? ['no agent reaches anything: none looks any more, or nothing answers'] : []),
    ...blind.map(s => `${s.vantage} does not reach ${region}`),
    ...(kafka === null ? [] : [`the Kafka of ${region} is not reached`]),
  ]
}

function regionText({ region, state, last }: RegionSeen, darkAfterMs: number): readonly string[] {
  switch (state) {
    case 'reached':
      return [`${region}: reached ${contact(last)}`]
    case 'missed':
      return [`${region}: NOT REACHED, last contact ${contact(last)}; dark after ${showDuration(darkAfterMs)}`]
    case 'dark':
      return [`${region}: DARK, last contact ${contact(last)}`]
    case 'not-looked':
      return [`${region}: NOT KNOWN, last contact ${contact(last)}`]
    case 'never-looked':
      return []
  }
}

function contact(sight: Sight | null): string {
  return sight === null ? 'never' : `${age(sight)} (${sight.what}, ${sight.vantage})`
}

function age({ lastContactAgeMs }: Sight): string {
  return lastContactAgeMs === null ? 'never' : `${formatMs(lastContactAgeMs)} ago`
}
