import type { Evidence, Json } from './evidence.ts'
import type { ForcedPermit } from './forced-interlock.ts'
import type { ActivationPermit } from './interlock.ts'
import type { Acknowledgement, LossEstimate } from './loss.ts'
import type { ForcedTransition, OwnershipRecord, TransitionName } from './ownership.ts'
import type { PlannedMove } from './plan.ts'
import type { Intent } from './runbook.ts'

/**
 * `OPEN` runs hold their keys. `NEEDS_HUMAN` is open too: nothing else may touch the keys until resume or abort settles it; only a forced
 * failover may seize them. `SEIZED`: it did, and nothing was left to settle.
 */
export const RUN_STATES = ['OPEN', 'NEEDS_HUMAN', 'DONE', 'ABORTED', 'REFUSED', 'SEIZED'] as const
export type RunState = (typeof RUN_STATES)[number]

/** States of a run that is not over: somebody drives it, or has to. */
export const OPEN_STATES: readonly RunState[] = ['OPEN', 'NEEDS_HUMAN']

export function isOpen({ state }: { readonly state: RunState }): boolean {
  return OPEN_STATES.includes(state)
}

/** How a key's part of a run ended; null while it has not. */
export type KeyOutcome = 'moved' | 'not-moved' | 'rolled-back' | 'unknown'

export type Holder = { readonly host: string; readonly pid: number; readonly user: string }

export type Run = {
  readonly id: string
  readonly planId: string
  readonly runbookName: string
  readonly runbookText: string
  readonly runbookSha256: string
  readonly intent: Intent
  readonly moves: readonly (PlannedMove & { readonly outcome: KeyOutcome | null })[]
  readonly state: RunState
  /** Rises with every take-over; each change is conditional on it. */
  readonly token: number
  readonly holder: Holder | null
  /** True while the lease has not run out by the control plane's clock. */
  readonly leaseAlive: boolean
  /** Milliseconds until (positive) or since (negative) the lease's end, by the control plane's clock; of a closed run, since its end. */
  readonly leaseLeftMs: number
  /** ISO 8601, control plane's clock. */
  readonly startedAt: string
  readonly endedAt: string | null
  /** Control-plane login that opened the run. */
  readonly startedBy: string
  readonly reason: string | null
}

/** The right to change one run. A change with a superseded token is refused by the control plane and changes nothing. */
export type RunLease = { readonly runId: string; readonly token: number }

export type AttemptOutcome = 'done' | 'failed' | 'unknown' | 'undone'

/** One try of one step for one key (null: for the run as a whole). `started` is committed before the side effect. */
export type Attempt = {
  readonly id: string
  readonly runId: string
  readonly key: string | null
  readonly step: string
  /** Action kind, or `gate` for a step without one. */
  readonly action: string
  readonly token: number
  readonly startedAt: string
  readonly outcome: AttemptOutcome | null
  readonly endedAt: string | null
  /** What the action returned (position, boundary rows), without secrets. */
  readonly result: Json
}

export type AttemptStart = { readonly id: string; readonly key: string | null; readonly step: string; readonly action: string }
export type AttemptEnd = { readonly id: string; readonly outcome: AttemptOutcome; readonly result: Json }

export type OwnershipChange = {
  readonly transition: Exclude<TransitionName, 'register' | 'activate' | ForcedTransition>
  /** The record as last read; the change is refused if it is not current any more. */
  readonly expected: OwnershipRecord
  /** Region being moved to; needed by `drain`, ignored by the others. */
  readonly target?: string
}

/** The one change that hands ownership over. Its permit carries the evidence; the control plane's constraints check it again. */
export type Activation = { readonly expected: OwnershipRecord; readonly permit: ActivationPermit }

/**
 * The one commit of a forced failover, for all its keys: `isolate*` and `activate-forced` of each, who owned which loss, the source's exile, its
 * lease withheld, and the runs that had the keys: closed as `SEIZED`, or left to settle the keys they keep. A run that was seized may have been
 * taken over since ours was opened, so that a region knows its newer token: retake the run before the target is told.
 * Refused with `loss-not-acknowledged`, `ack-token-refused`, `loss-forbidden`, `region-exiled` (the target), `approval-refused`, `epoch-moved`.
 */
export type ForcedChange = {
  /** The records as last read, those of the permit; refused as a whole when one is not current any more. */
  readonly expected: readonly OwnershipRecord[]
  readonly permit: ForcedPermit
  readonly estimate: LossEstimate
  readonly acknowledgement: Acknowledgement
}

/** One transaction of the journal: all of it or nothing, and only under a current token. */
export type JournalChange = {
  readonly ends?: readonly AttemptEnd[]
  readonly evidence?: readonly Evidence[]
  readonly ownership?: readonly OwnershipChange[]
  readonly activation?: Activation
  readonly forced?: ForcedChange
  readonly starts?: readonly AttemptStart[]
  readonly keyOutcomes?: readonly { readonly key: string; readonly outcome: KeyOutcome }[]
  readonly runState?: RunState
}

export type AuditEntry = {
  readonly seq: number
  readonly at: string
  readonly actor: string
  readonly event: string
  readonly runId: string | null
  readonly key: string | null
  readonly detail: Json
  readonly hash: string
}
