import type { RegionConditions } from '../domain/ports.ts'

/** Why no key of the region can be written, whatever its own row says; empty while it can. */
export function closedBecause(region: string, conditions: RegionConditions): readonly string[] {
  const { fencedSince, fencedReason, writesNeedLease, lease } = conditions
  return [
    ...(fencedSince === null ? [] : [`${region} is fenced as a whole since ${fencedSince} (${fencedReason ?? 'no reason given'})`]),
    ...(writesNeedLease && (lease?.leftMs ?? 0) <= 0 ? [`${region} has no lease, and writes nothing without one (homeregion agent)`] : []),
  ]
}
