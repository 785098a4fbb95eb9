import type { Backlog } from './ports.ts'

/** A reading of a region's own clock, in the database's full precision. Only handed back to it, or shown. */
export type RegionClock = { readonly reading: string; readonly epochMs: number }

/** The clock, and the number of the newest grant the region knows; 0: none. */
export type LeaseReading = RegionClock & { readonly generation: number }

/** What an agent does at a region, over a session of its own, so that it never waits behind an operator's work. */
export interface RegionPulse {
  readonly region: string
  readClock(): Promise<LeaseReading>
  /**
   * Tells the region the end of its lease: a reading of its own clock plus the duration, so that a late call extends nothing. Idempotent.
   * `stops`: the guard that refuses writes after the end stands on every table, as the region's catalogue says.
   * @throws `superseded` when the region knows a later grant
   */
  grantLease(generation: number, from: RegionClock, durationMs: number): Promise<{ readonly stops: boolean }>
  /** One event through the outbox, on the way all events take. @throws `check-refused` while the region is fenced */
  heartbeat(eventId: string): Promise<void>
  /** Committed events of all keys that have not left the outbox, by the database's own clock. null: the relay leaves no mark of it. */
  unpublished(): Promise<Omit<Backlog, 'oldestEventId'> | null>
  /** Which of these events its inbox has. */
  inboxHas(eventIds: readonly string[]): Promise<readonly string[]>
  close(): Promise<void>
}
