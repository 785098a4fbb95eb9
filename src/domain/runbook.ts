import type { CheckName } from './checks.ts'

export const RUNBOOK_API = 'homeregion/v1'

/** `transfer` never loses a committed write; `failover` may, and says which; `rejoin` moves no key: it brings a region back that was failed over. */
export const INTENTS = ['transfer', 'failover', 'rejoin'] as const
export type Intent = (typeof INTENTS)[number]

/** A check as a step uses it, with its parameters filled in from the defaults. Durations are milliseconds. */
export type CheckUse = { readonly check: CheckName; readonly parameters: Readonly<Record<string, number>> }

/** What a step does. `drain`, `fence`, `isolate` and `activate` move ownership; the others are the author's. */
export type ActionUse =
  | { readonly kind: 'drain' }
  | { readonly kind: 'fence' }
  | { readonly kind: 'activate' }
  /** Intent failover: stop granting the source's lease and wait it out, or apply its external fences, or take a person's word. */
  | { readonly kind: 'isolate' }
  /** Intent rejoin, as is `fence` of the whole region; what each does stands in docs/REJOIN.md. */
  | { readonly kind: RejoinAction }
  /** Fences of the whole source region, by name; applied once, when no other key is at home there any more. */
  | { readonly kind: 'fence-region'; readonly fences: readonly string[] }
  /** argv, never a shell string; values of the run arrive as HOMEREGION_* environment variables. */
  | { readonly kind: 'exec'; readonly command: readonly string[]; readonly timeoutMs: number }
  | { readonly kind: 'notify'; readonly command: readonly string[]; readonly timeoutMs: number }
  | {
      readonly kind: 'http'
      readonly method: 'GET' | 'POST' | 'PUT'
      readonly url: string
      readonly timeoutMs: number
      readonly expectStatus: number
    }
  /** One statement at a region's operator login; parameters are bound by name from the run: `$key`, `$run`, `$source`, `$target`, `$epoch`. */
  | { readonly kind: 'sql'; readonly region: 'source' | 'target'; readonly statement: string; readonly parameters: readonly SqlParameter[] }
  | { readonly kind: 'pause'; readonly forMs: number }

/** Of the fixed steps of a rejoin those that no other runbook has. */
export const REJOIN_ACTIONS = ['follow', 'list', 'decide', 'level', 'lift', 'end'] as const
export type RejoinAction = (typeof REJOIN_ACTIONS)[number]

export type SqlParameter = 'key' | 'run' | 'source' | 'target' | 'epoch'

export type ActionKind = ActionUse['kind']
/** What a run can be asked for. */
export type RunAction = Exclude<ActionKind, RejoinAction>

/** Actions that change ownership or a region's boundary; each runs exactly once per key. */
export const OWNERSHIP_ACTIONS = ['drain', 'fence', 'isolate', 'activate'] as const satisfies readonly ActionKind[]

/** `plain`: yes or no. `type-key`: the key (for several keys: their number) is typed. */
export type Confirm = 'plain' | 'type-key'

export type Step = {
  readonly id: string
  readonly title: string
  readonly action: ActionUse | null
  readonly gate: readonly CheckUse[]
  readonly watch: readonly CheckUse[]
  /** Deadline of the gate. */
  readonly withinMs: number
  /** How long `watch` goes on; 0 where there is none. */
  readonly forMs: number
  readonly confirm: Confirm | null
}

export type Runbook = {
  readonly name: string
  readonly intent: Intent
  readonly title: string
  readonly steps: readonly Step[]
}

/** A runbook with the exact text it was read from: what a run pins. */
export type PinnedRunbook = { readonly runbook: Runbook; readonly text: string; readonly sha256: string; readonly origin: string }
