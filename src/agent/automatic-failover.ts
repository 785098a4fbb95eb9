import type { ExitName } from '../domain/exit-codes.ts'

/** What can be said of a region without changing anything. */
export type AutomaticLook =
  /** Somebody reached it not long ago. */
  | { readonly kind: 'answers' }
  /** It is dark, and an agent may not decide: why. */
  | { readonly kind: 'not-mine'; readonly why: string }
  | { readonly kind: 'ready'; readonly target: string; readonly keys: number; readonly lossMs: number; readonly staying: number }

export type AutomaticEnd = { readonly exit: ExitName; readonly fact: string; readonly next: string | null }

/** The forced failover as an agent may run it: whoever wires the agent knows how. */
export interface AutomaticFailover {
  look(source: string): Promise<AutomaticLook>
  /** Looks again, then runs `failover.yaml`; owns no more loss than `policy.automatic.maxLoss`. */
  run(source: string, signal: AbortSignal): Promise<AutomaticEnd>
  /** Since the last automatic run of any agent, at least, by the control plane's clock; null: there was none. */
  sinceLastMs(): Promise<number | null>
}
