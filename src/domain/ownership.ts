/**
 * Ownership of a key and the only table of its legal transitions. Types, the control plane's CHECK constraints, the diagram,
 * the tests, `homeregion states` and `doctor` are derived from `TRANSITIONS`; nothing else lists them.
 */
export const STATES = ['ACTIVE', 'DRAINING', 'FENCED', 'CATCH_UP'] as const
export type OwnershipState = (typeof STATES)[number]

/** Who may commit a change to the key while it is in the state the transition leads to. */
export type MayWrite = 'home' | 'in-flight' | 'nobody'

/** `first` = 1; `same` keeps the epoch; `next` = epoch + 1. */
export type EpochRule = 'first' | 'same' | 'next'

/** Which region is home after the transition: the one given, the one before, or the run's target. */
export type HomeRule = 'given' | 'same' | 'target'

export type Transition = {
  readonly name: string
  readonly from: OwnershipState | null
  readonly to: OwnershipState
  readonly mayWrite: MayWrite
  readonly epoch: EpochRule
  readonly home: HomeRule
  /** Takes the key from whatever run had it, and to a target of its own; only as part of a forced failover. */
  readonly seizes?: true
  /** One sentence for the operator. */
  readonly sentence: string
}

export const TRANSITIONS = [
  {
    name: 'register',
    from: null,
    to: 'ACTIVE',
    mayWrite: 'home',
    epoch: 'first',
    home: 'given',
    sentence: 'The key is registered and its home region may write.',
  },
  {
    name: 'drain',
    from: 'ACTIVE',
    to: 'DRAINING',
    mayWrite: 'in-flight',
    epoch: 'same',
    home: 'same',
    sentence: 'The source admits no new writes; writes in flight finish.',
  },
  {
    name: 'fence',
    from: 'DRAINING',
    to: 'FENCED',
    mayWrite: 'nobody',
    epoch: 'same',
    home: 'same',
    sentence: 'The source can no longer write; nobody may.',
  },
  {
    name: 'catch-up',
    from: 'FENCED',
    to: 'CATCH_UP',
    mayWrite: 'nobody',
    epoch: 'same',
    home: 'same',
    sentence: 'The target applies everything up to the fence; nobody may write.',
  },
  {
    name: 'activate',
    from: 'CATCH_UP',
    to: 'ACTIVE',
    mayWrite: 'home',
    epoch: 'next',
    home: 'target',
    sentence: 'The target is home under a new epoch and may write.',
  },
  {
    name: 'resume-drained',
    from: 'DRAINING',
    to: 'ACTIVE',
    mayWrite: 'home',
    epoch: 'same',
    home: 'same',
    sentence: 'The move was abandoned before the fence; the source writes on under the same epoch.',
  },
  {
    name: 'resume-fenced',
    from: 'FENCED',
    to: 'ACTIVE',
    mayWrite: 'home',
    epoch: 'next',
    home: 'same',
    sentence: 'The move was abandoned after the fence; the source writes again under a new epoch.',
  },
  {
    name: 'resume-catch-up',
    from: 'CATCH_UP',
    to: 'ACTIVE',
    mayWrite: 'home',
    epoch: 'next',
    home: 'same',
    sentence: 'The move was abandoned while the target caught up; the source writes again under a new epoch.',
  },
  {
    name: 'isolate',
    from: 'ACTIVE',
    to: 'FENCED',
    mayWrite: 'nobody',
    epoch: 'same',
    home: 'same',
    seizes: true,
    sentence: 'The source is dark and fenced from outside, without its word; by our record nobody may write.',
  },
  {
    name: 'isolate-draining',
    from: 'DRAINING',
    to: 'FENCED',
    mayWrite: 'nobody',
    epoch: 'same',
    home: 'same',
    seizes: true,
    sentence: 'A move that had begun to drain is seized; the source is fenced from outside, nobody may write.',
  },
  {
    name: 'isolate-fenced',
    from: 'FENCED',
    to: 'FENCED',
    mayWrite: 'nobody',
    epoch: 'same',
    home: 'same',
    seizes: true,
    sentence: 'A move that had fenced the source is seized; the source is fenced from outside too, nobody may write.',
  },
  {
    name: 'isolate-catch-up',
    from: 'CATCH_UP',
    to: 'FENCED',
    mayWrite: 'nobody',
    epoch: 'same',
    home: 'same',
    seizes: true,
    sentence: 'A move whose target was catching up is seized; the source is fenced from outside too, nobody may write.',
  },
  {
    name: 'activate-forced',
    from: 'FENCED',
    to: 'ACTIVE',
    mayWrite: 'home',
    epoch: 'next',
    home: 'target',
    sentence: 'The target is home under a new epoch without having caught up; what may be lost was acknowledged.',
  },
] as const satisfies readonly Transition[]

export type TransitionName = (typeof TRANSITIONS)[number]['name']

/** The transitions of a forced failover: they happen together, in one commit, or not at all. */
export const FORCED_TRANSITIONS = [
  'isolate',
  'isolate-draining',
  'isolate-fenced',
  'isolate-catch-up',
  'activate-forced',
] as const satisfies readonly TransitionName[]
export type ForcedTransition = (typeof FORCED_TRANSITIONS)[number]

/** One key as the control plane knows it. `seq` is the number of its last log row: the value a compare-and-swap expects. */
export type OwnershipRecord = {
  readonly key: string
  readonly homeRegion: string
  /** Set while a run is moving the key, otherwise null. */
  readonly targetRegion: string | null
  readonly epoch: number
  readonly state: OwnershipState
  readonly seq: number
  /** The run that made the last change; null for a registration. */
  readonly runId: string | null
  /** ISO 8601, by the control plane's clock. */
  readonly changedAt: string
  /** The control-plane login that made the last change. */
  readonly changedBy: string
}

export function transition(name: TransitionName): Transition {
  const found = TRANSITIONS.find(t => t.name === name)
  if (found === undefined) throw new RangeError(`no transition is named ${name}`)
  return found
}

/** The transition that takes a key back to its source, or null where there is none (an ACTIVE key has nothing to undo). */
export function resumeTransition(from: OwnershipState): Extract<TransitionName, `resume-${string}`> | null {
  switch (from) {
    case 'ACTIVE':
      return null
    case 'DRAINING':
      return 'resume-drained'
    case 'FENCED':
      return 'resume-fenced'
    case 'CATCH_UP':
      return 'resume-catch-up'
  }
}

/** The transition by which a forced failover takes the key away from its home, whatever state a run left it in. */
export function isolateTransition(from: OwnershipState): Exclude<ForcedTransition, 'activate-forced'> {
  switch (from) {
    case 'ACTIVE':
      return 'isolate'
    case 'DRAINING':
      return 'isolate-draining'
    case 'FENCED':
      return 'isolate-fenced'
    case 'CATCH_UP':
      return 'isolate-catch-up'
  }
}

export function epochAfter(name: TransitionName, epoch: number): number {
  const rule = transition(name).epoch
  return rule === 'next' ? epoch + 1 : rule === 'first' ? 1 : epoch
}

/**
 * The record that `name` leads to. `changedAt` and `changedBy` stay the old ones until the control plane has answered.
 * @throws RangeError when the table has no such step from this record
 */
export function recordAfter(
  record: OwnershipRecord,
  name: TransitionName,
  change: { readonly runId: string; readonly target?: string },
): OwnershipRecord {
  const step = transition(name)
  if (step.from !== record.state) throw new RangeError(`${name} leads from ${step.from ?? 'nowhere'}, the key is ${record.state}`)
  const targetRegion = (step.seizes === true ? change.target : (record.targetRegion ?? change.target)) ?? null
  if (targetRegion === null) throw new RangeError(`${name} needs a target region`)
  return {
    ...record,
    homeRegion: step.home === 'target' ? targetRegion : record.homeRegion,
    targetRegion: step.to === 'ACTIVE' ? null : targetRegion,
    epoch: epochAfter(name, record.epoch),
    state: step.to,
    seq: record.seq + 1,
    runId: change.runId,
  }
}
