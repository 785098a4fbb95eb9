import type { OutsideFence } from '../domain/checks.ts'
import type { Config, RegionConfig } from '../domain/config.ts'
import type { ExitName } from '../domain/exit-codes.ts'
import type { RunState } from '../domain/journal.ts'
import type { Acknowledgement, BlockedKey, LossEstimate } from '../domain/loss.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { Plan, PlannedMove } from '../domain/plan.ts'
import type { Runbook } from '../domain/runbook.ts'
import type { Engine, Operator } from './context.ts'
import type { RunJournal } from './run-journal.ts'
import type { OwnTries, Vantage } from './vantage.ts'

/** What the configuration says that a forced failover has to know beyond what every run knows. */
export type ForcedSettings = {
  readonly policy: Pick<Config['policy'], 'loss' | 'darkAfterMs' | 'evidenceMaxAgeMs' | 'approvals' | 'callTimeoutMs'>
  /** The source's. */
  readonly lease: RegionConfig['lease']
  /** The source's fences that need no word of it, with the time each may take. */
  readonly external: readonly { readonly name: string; readonly timeoutMs: number }[]
  /** All configured regions but the source. */
  readonly others: readonly string[]
}

export function forcedSettings(config: Config, source: string): ForcedSettings {
  const region = config.regions.find(r => r.name === source)
  const external = (region?.fences ?? []).flatMap(f =>
    f.kind === 'exec' || f.kind === 'http' ? [{ name: f.name, timeoutMs: f.timeoutMs }] : [],
  )
  const others = config.regions.map(r => r.name).filter(name => name !== source)
  return { policy: config.policy, lease: region?.lease ?? null, external, others }
}

/** Half of how old evidence may be: a dark region answers nothing, and waiting for it must not make the other evidence too old. */
export function patienceMs({ policy }: ForcedSettings): number {
  return Math.max(500, Math.min(policy.callTimeoutMs, policy.evidenceMaxAgeMs / 2))
}

/** Somebody's word that the source can no longer write; `saidAtMs` by the engine's monotonic clock. */
export type Attestation = { readonly reason: string; readonly by: string; readonly saidAtMs: number }

/** This host's tries to reach the source, and when they were begun: what they say is as of then. */
export type Tries = { readonly own: OwnTries; readonly asOf: string; readonly asOfMonotonicMs: number; readonly endedMonotonicMs: number }

/** One forced failover on its way. Mutable on purpose: it is the engine's only picture, corrected from the authority. */
export type ForcedMove = {
  /** With the checks that only a forced failover can answer. */
  readonly engine: Engine
  readonly operator: ForcedOperator
  readonly settings: ForcedSettings
  readonly journal: RunJournal
  readonly runbook: Runbook
  readonly plan: Plan
  readonly moves: readonly PlannedMove[]
  readonly source: string
  readonly target: string
  readonly fence: OutsideFence
  /** Keys of the estimate: those that move, and where they are known those that the policy keeps. */
  readonly keys: readonly { readonly key: string; readonly epoch: number }[]
  readonly acknowledgement: Acknowledgement
  /** No person began it: a person's word cannot be what it stands on. */
  readonly automatic: boolean
  attestation: Attestation | null
  /** Steps whose confirmation or own action an earlier process of this run has on record. */
  readonly doneSteps: ReadonlySet<string>
  readonly observeMs: number | null
  vantage: Vantage | null
  /** Begun while the fence from outside was waited for, so that a silent source costs no time after it; null once they were used. */
  triesAhead?: Promise<Tries> | null
  triesTookMs?: number
  /** Of the hand-over: `source-dark` goes by these then. */
  tries?: Tries
  estimate: LossEstimate | null
  /** When the external fences were seen to hold, by the engine's monotonic clock. */
  heldAtMs: number | null
  records: readonly OwnershipRecord[]
  /** Attempt of an activation that was committed and not seen to its end. */
  openAttempt: string | null
}

export interface ForcedOperator extends Operator {
  /** Somebody is there to see a countdown. False: a gate that waits for others is left, and `resume` goes on. */
  readonly watches: boolean
}

export type ForcedEnd = {
  readonly runId: string
  readonly exit: ExitName
  readonly state: RunState
  readonly source: string
  readonly target: string
  readonly fence: OutsideFence
  /** Keys that are the target's now, as read back. */
  readonly moved: readonly PlannedMove[]
  readonly blocked: readonly BlockedKey[]
  /** The fact, the state of the data and what to type, as for an error. */
  readonly fact: string
  readonly data: string
  readonly next: string | null
}
