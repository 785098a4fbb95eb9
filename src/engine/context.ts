import type { CheckName } from '../domain/checks.ts'
import type { Config } from '../domain/config.ts'
import type { Evidence, Observation } from '../domain/evidence.ts'
import type { Fence } from '../domain/fence.ts'
import type { InterlockPolicy } from '../domain/interlock.ts'
import type { Holder, KeyOutcome } from '../domain/journal.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { DroppedCheck, Plan, PlannedMove } from '../domain/plan.ts'
import type { Clock, ControlPlane, FaultPoint, Hooks, RegionDatabase, RegionStream } from '../domain/ports.ts'
import type { CheckUse, Step } from '../domain/runbook.ts'

/** What happens, as it happens. The command line draws it; tests record it. */
export type RunEvent =
  | { readonly type: 'run-opened'; readonly runId: string; readonly plan: Plan }
  | { readonly type: 'key-started'; readonly move: PlannedMove; readonly index: number; readonly total: number }
  | { readonly type: 'step-started'; readonly step: Step; readonly key: string | null }
  /** One round of a gate that has not passed yet: live values. */
  | {
      readonly type: 'gate-waiting'
      readonly step: Step
      readonly key: string | null
      readonly evidence: readonly Evidence[]
      /** Instead of what the evidence says. */
      readonly text?: string
      readonly leftMs: number
    }
  | {
      readonly type: 'step-passed'
      readonly step: Step
      readonly key: string | null
      readonly evidence: readonly Evidence[]
      readonly tookMs: number
    }
  | { readonly type: 'ownership'; readonly record: OwnershipRecord }
  | { readonly type: 'watching'; readonly step: Step; readonly evidence: readonly Evidence[]; readonly leftMs: number }
  | { readonly type: 'undoing'; readonly key: string; readonly why: string }
  | { readonly type: 'key-ended'; readonly move: PlannedMove; readonly outcome: KeyOutcome; readonly detail: string }
  | { readonly type: 'note'; readonly text: string }

/** The person, or the flags that stand for one. Silence is never consent: every method has an answer for "nobody is there". */
export interface Operator {
  report(event: RunEvent): void
  /** Before anything moves. False: declined. */
  confirm(step: Step, plan: Plan): Promise<boolean>
  /** A gate's deadline is over. `abort` where nobody can be asked. */
  atDeadline(step: Step, evidence: readonly Evidence[]): Promise<'wait' | 'abort'>
  /** True once Ctrl-C (or a termination) was seen. */
  interrupted(): boolean
}

export type EnginePolicy = {
  readonly interlock: InterlockPolicy
  readonly dropped: readonly DroppedCheck[]
  readonly runLeaseMs: number
  readonly callTimeoutMs: number
  /** Topology `shared`: both regions are one database. */
  readonly shared: boolean
  /** Consumer group of a region's inbox, for observing what it has read. */
  readonly inboxGroup: (region: string) => string
  /** Told when a fence that should stand is found lifted after activation. */
  readonly alarm: Config['alarm']
}

export type Engine = {
  readonly controlPlane: ControlPlane
  readonly region: (name: string) => RegionDatabase
  readonly stream: (name: string) => RegionStream
  /** The boundary of a region and the fences configured for it; made once. */
  readonly fences: (region: string) => readonly Fence[]
  readonly hooks: Hooks
  readonly clock: Clock
  readonly fault: FaultPoint
  readonly policy: EnginePolicy
  readonly operator: Operator
  readonly holder: Holder
  readonly newId: () => string
  /** Checks that need to know more than the engine: those of a forced failover. They stand before the table of handlers. */
  readonly checks?: Partial<Record<CheckName, CheckHandler>>
}

export type StandingFence = { readonly region: string; readonly name: string }

/** What a check sees. `key` is null for checks of the run. */
export type CheckSubject = {
  readonly moves: readonly PlannedMove[]
  readonly move: PlannedMove | null
  /** Barrier of the fence in force, once there is one. */
  readonly barrierEventId: string | null
  /** When the run (or its resumption) began, by the engine's monotonic clock. */
  readonly startedMonotonicMs: number
  /** Fences of whole regions that this run applied, by region and name: what fence-holds demands beside the key's own. Grows as they are applied. */
  readonly standing: StandingFence[]
  /** Memory of one check across its rounds (what it saw first); never evidence. */
  readonly memory: Map<string, unknown>
}

export type CheckHandler = (engine: Engine, subject: CheckSubject, use: CheckUse) => Promise<Observation>

/** A handler for a check of one key, with the key guaranteed. */
export type KeySubject = CheckSubject & { readonly move: PlannedMove }

export function keyOf(subject: CheckSubject): KeySubject {
  if (subject.move === null) throw new RangeError('the check is for one key')
  return { ...subject, move: subject.move }
}
