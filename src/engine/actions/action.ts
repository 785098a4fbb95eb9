import type { PlannedMove } from '../../domain/plan.ts'
import type { ActionKind, ActionUse, Step } from '../../domain/runbook.ts'
import type { KeyMove } from '../key-move.ts'

/** What a look at the world says of an attempt whose outcome is not in the journal. `unknown`: it left nothing that can be read. */
export type Settled = 'done' | 'not-done' | 'unknown'

/**
 * One kind of action, one file. `apply` commits `started` before its side effect and is idempotent; `verify` only reads;
 * `undo` takes back what the action did, or is null where it cannot be taken back (or leaves nothing behind).
 */
export type Action<K extends ActionKind = ActionKind> = {
  readonly kind: K
  /** What it will do, for the plan. */
  plan(move: PlannedMove, use: Extract<ActionUse, { kind: K }>): string
  apply(key: KeyMove, step: Step, use: Extract<ActionUse, { kind: K }>): Promise<void>
  verify(key: KeyMove): Promise<Settled>
  readonly undo: ((key: KeyMove) => Promise<void>) | null
}
