/** Every check a runbook may name. The linter, the JSON Schema, help and the engine's table of handlers are derived from it. */
export type CheckScope = 'run' | 'key'

export type CheckParameter = 'duration' | 'count'

export type CheckSpec = {
  readonly name: string
  /** `run`: once per run; `key`: once per key. */
  readonly scope: CheckScope
  /** What it proves for the interlock, if anything. */
  readonly proves: 'fence' | 'catch-up' | 'fence-from-outside' | 'loss' | null
  /** Parameter names, with their kind and default (durations in ms). */
  readonly parameters: Readonly<Record<string, { kind: CheckParameter; default: number }>>
  /** False: a `fail` will not turn into a pass by waiting, so the gate refuses at once instead of at its deadline. */
  readonly waits: boolean
  readonly sentence: string
}

export const CHECKS = [
  {
    name: 'regions-reachable',
    scope: 'run',
    proves: null,
    parameters: {},
    waits: false,
    sentence: 'Both databases and both Kafkas answer.',
  },
  {
    name: 'boundary-installed',
    scope: 'run',
    proves: null,
    parameters: {},
    waits: false,
    sentence: 'The guard stands, enabled and unchanged, on every guarded table of both regions.',
  },
  {
    name: 'fence-covers-writers',
    scope: 'run',
    proves: null,
    parameters: {},
    waits: false,
    sentence: 'Nobody in the source can write around the fence.',
  },
  {
    name: 'target-can-write',
    scope: 'run',
    proves: null,
    parameters: {},
    waits: false,
    sentence: 'The target is a primary, not read-only, and its writers can log in.',
  },
  {
    name: 'replication-behind',
    scope: 'key',
    proves: null,
    parameters: { atMost: { kind: 'duration', default: 2000 } },
    waits: true,
    sentence: 'The target is at most this far behind the source.',
  },
  {
    name: 'writes-in-flight',
    scope: 'key',
    proves: null,
    parameters: { atMost: { kind: 'count', default: 0 } },
    waits: true,
    sentence: 'No transaction that wrote the key is still open at the source.',
  },
  {
    name: 'outbox-published',
    scope: 'key',
    proves: null,
    parameters: {},
    waits: true,
    sentence: 'Every committed event of the key has left the outbox.',
  },
  {
    name: 'events-replicated',
    scope: 'key',
    proves: null,
    parameters: {},
    waits: true,
    sentence: "The key's events have reached the Kafka that the target reads.",
  },
  {
    name: 'fence-holds',
    scope: 'key',
    proves: 'fence',
    parameters: {},
    waits: false,
    sentence: 'A write as each real writer role is refused at the source, and its position does not move.',
  },
  {
    name: 'barrier-applied',
    scope: 'key',
    proves: 'catch-up',
    parameters: {},
    waits: true,
    sentence: "The fence's barrier event is in the target's inbox.",
  },
  {
    name: 'versions-equal',
    scope: 'key',
    proves: 'catch-up',
    parameters: {},
    waits: true,
    sentence: 'Source and target hold the same aggregate versions of the key.',
  },
  {
    name: 'idempotency-carried',
    scope: 'key',
    proves: 'catch-up',
    parameters: {},
    waits: true,
    sentence: "The target holds the source's idempotency records of the key.",
  },
  {
    name: 'target-accepts-write',
    scope: 'key',
    proves: null,
    parameters: {},
    waits: true,
    sentence: 'A write at the target under the new epoch, rolled back, is admitted.',
  },
  {
    name: 'stale-rejections',
    scope: 'run',
    proves: null,
    parameters: { settleWithin: { kind: 'duration', default: 300_000 } },
    waits: true,
    sentence: 'Rejections of stale requests have stopped rising.',
  },
  {
    name: 'delayed-events',
    scope: 'run',
    proves: null,
    parameters: { settleWithin: { kind: 'duration', default: 300_000 } },
    waits: true,
    sentence: 'No event of an older epoch is still arriving at the target.',
  },
  {
    name: 'source-dark',
    scope: 'run',
    proves: null,
    parameters: {},
    waits: false,
    sentence: 'No vantage point has reached the source within policy.darkAfter.',
  },
  {
    name: 'no-region-ahead',
    scope: 'run',
    proves: null,
    parameters: {},
    waits: false,
    sentence: 'No region that answers has a key as its own, or a later epoch of it, against the record of the control plane.',
  },
  {
    name: 'lease-over',
    scope: 'run',
    proves: 'fence-from-outside',
    parameters: {},
    waits: true,
    sentence: "The source's lease is granted no more, and its last grant is over by the control plane's clock.",
  },
  {
    name: 'external-fence-holds',
    scope: 'run',
    proves: 'fence-from-outside',
    parameters: {},
    waits: false,
    sentence: 'Each exec and http fence of the source is applied, and its own probe says that it stands.',
  },
  {
    name: 'source-attested',
    scope: 'run',
    proves: 'fence-from-outside',
    parameters: {},
    waits: true,
    sentence: 'A person says, with a reason, that the source can no longer write.',
  },
  {
    name: 'loss-acknowledged',
    scope: 'run',
    proves: 'loss',
    parameters: {},
    waits: false,
    sentence: 'What may be lost was measured, the policy allows it, and a person or a token owned it.',
  },
  {
    name: 'approved',
    scope: 'run',
    proves: null,
    parameters: {},
    waits: true,
    sentence: 'As many approvers as the policy asks for have agreed, none of them the one who began.',
  },
] as const satisfies readonly CheckSpec[]

export type CheckName = (typeof CHECKS)[number]['name']

/** The three fences that need no word of the source; a forced failover stands on exactly one. */
export const OUTSIDE_FENCES = ['lease-over', 'external-fence-holds', 'source-attested'] as const satisfies readonly CheckName[]
export type OutsideFence = (typeof OUTSIDE_FENCES)[number]

/** Checks of which only a run of intent failover has any use. */
export const FORCED_CHECKS = [
  'source-dark',
  'no-region-ahead',
  ...OUTSIDE_FENCES,
  'loss-acknowledged',
  'approved',
] as const satisfies readonly CheckName[]

export function checkSpec(name: CheckName): CheckSpec {
  const found = CHECKS.find(c => c.name === name)
  if (found === undefined) throw new RangeError(`no check is named ${name}`)
  return found
}
