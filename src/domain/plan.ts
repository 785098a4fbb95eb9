import type { CheckName } from './checks.ts'
import type { OwnershipRecord } from './ownership.ts'
import type { PinnedRunbook } from './runbook.ts'

/** One key of a plan: what will be compared and swapped. */
export type PlannedMove = {
  readonly key: string
  readonly source: string
  readonly target: string
  readonly epoch: number
  readonly seq: number
}

/** A check the configured transport or topology makes pointless, and why; shown in the plan, never silently dropped. */
export type DroppedCheck = { readonly check: CheckName; readonly reason: string }

/** A plan is a value: computed from runbook, parameters and ownership; shown; then applied only if ownership is still what it says. */
export type Plan = {
  /** First 12 hex digits of the hash over runbook hash, moves (with epochs) and dropped checks. */
  readonly id: string
  readonly pinned: PinnedRunbook
  readonly moves: readonly PlannedMove[]
  /** Keys that need nothing, because their home is the target already. */
  readonly alreadyThere: readonly OwnershipRecord[]
  readonly dropped: readonly DroppedCheck[]
}
