import type { CheckName } from './checks.ts'

/** Three-valued; only `pass` opens a gate. What cannot be observed is `unknown`, never 0 and never healthy. */
export type Verdict = 'pass' | 'fail' | 'unknown'

/** JSON as the journal stores it. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json }

export function isJsonObject(json: Json): json is { readonly [name: string]: Json } {
  return typeof json === 'object' && json !== null && !Array.isArray(json)
}

/** What a check returns: one observation. */
export type Observation = {
  readonly verdict: Verdict
  /** What was seen, in the operator's words and with units: `3 unpublished, oldest 1.2 s`. */
  readonly observed: string
  /** What would pass: `0 unpublished`. */
  readonly required: string
  /** Who observed it: `region-a database`, `region-b Kafka`. */
  readonly observer: string
  /** Raw values, for the record and for `-o json`. */
  readonly facts?: { readonly [name: string]: Json }
}

/** An observation bound to the run, key, step and attempt it was made for, with its time by the engine's own clocks. */
export type Evidence = Observation & {
  readonly check: CheckName
  readonly runId: string
  /** null for checks of the run as a whole. */
  readonly key: string | null
  readonly step: string
  /** The activation attempt the evidence was gathered for, or null when it was gathered for a gate. */
  readonly attemptId: string | null
  /** ISO 8601, taken before the observation began. */
  readonly asOf: string
  /** Milliseconds of the engine's monotonic clock, taken before the observation began; ages come from this clock only. */
  readonly asOfMonotonicMs: number
}

/** What is typed to mend what was seen, where the check knows it better than whoever asked. */
export function remedyOf(observations: readonly Observation[]): string | null {
  const remedies = observations.map(o => o.facts?.['remedy']).filter(r => typeof r === 'string')
  return remedies[0] ?? null
}

export function pass(observer: string, required: string, observed: string, facts?: Observation['facts']): Observation {
  return { verdict: 'pass', observer, required, observed, ...(facts === undefined ? {} : { facts }) }
}

export function fail(observer: string, required: string, observed: string, facts?: Observation['facts']): Observation {
  return { verdict: 'fail', observer, required, observed, ...(facts === undefined ? {} : { facts }) }
}

export function unknown(observer: string, required: string, observed: string, facts?: Observation['facts']): Observation {
  return { verdict: 'unknown', observer, required, observed, ...(facts === undefined ? {} : { facts }) }
}
