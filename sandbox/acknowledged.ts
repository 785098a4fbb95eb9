/** One write that a region said it had committed: the ground truth that the databases are held against. */
export type Acknowledged = {
  readonly idempotencyKey: string
  readonly key: string
  readonly accountId: string
  readonly version: number
  readonly epoch: number
  /** Region that committed it. */
  readonly region: string
  readonly replayed: boolean
  /** Milliseconds of one clock: the load generator's. `sentAtMs` is the first attempt, `lastSentAtMs` the one that was answered. */
  readonly sentAtMs: number
  readonly lastSentAtMs: number
  readonly ackedAtMs: number
  readonly attempts: number
}
