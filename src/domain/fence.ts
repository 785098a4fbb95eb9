import type { Json, Observation } from './evidence.ts'

/**
 * Fences of a whole region: each stops every writer of the region by a way of its own, says what it did as read back, proves itself by
 * refused writes, and takes back exactly what it changed. A key's own fence is the boundary row (`actions/fence.ts`). A lease, which the
 * region cannot renew by itself, is the kind that is still to come.
 */
export const FENCE_KINDS = ['boundary', 'credentials', 'read-only', 'kafka', 'exec', 'http'] as const
export type FenceKind = (typeof FENCE_KINDS)[number]

/** Name of the fence every region has without being configured: its boundary, closed for all keys at once. */
export const BOUNDARY_FENCE = 'boundary'

/** Who wants it and why; kept with the fence while it stands. */
export type FenceCause = { readonly reason: string; readonly by: string; readonly runId: string | null }

/** One statement or call a fence will make, as shown before it is made. Holds no secret: a verifier or token is shown as what it is. */
export type FenceStep = { readonly place: string; readonly text: string; readonly why: string }

/**
 * `applying` and `lifting` say that a process died on the way: the same verb finishes it. `unknown`: it could not be read, which is never
 * the same as lifted.
 */
export type FenceState = 'lifted' | 'applying' | 'applied' | 'lifting' | 'unknown'

export type FenceStatus = {
  readonly state: FenceState
  /** ISO 8601, null while lifted or unknown. */
  readonly since: string | null
  readonly cause: FenceCause | null
  /** Which wish that is; null while lifted, or where it could not be read. */
  readonly asked: number | null
  /** What it holds now, one line each, as read back: `app_writer: NOLOGIN`. For `unknown`: why. */
  readonly holds: readonly string[]
}

/** One of a region's fences. Every method bounds its own time. */
export interface Fence {
  readonly region: string
  readonly name: string
  readonly kind: FenceKind
  /** The exact statements or calls that `apply` or `lift` would make in the world as it is now. Only reads. */
  plan(direction: 'apply' | 'lift'): Promise<readonly FenceStep[]>
  /**
   * Idempotent; finishes what a killed process left half-done. What was there before is on record before (or in the same commit as) the
   * first change. Returns lines of what stands now, each read back.
   * @throws HomeregionError `fence-failed` (what stands and what does not is in its `state` line), `region-unreachable`, `kafka-unreachable`,
   *   `privilege-missing`, `outcome-unknown`
   */
  apply(cause: FenceCause): Promise<readonly string[]>
  /** The proof: real refused writes and catalogues read, nothing changed. At least one observation; only all `pass` is proof. */
  verify(): Promise<readonly Observation[]>
  /**
   * Takes back exactly what `apply` changed, nothing more. Idempotent; finishes what was half-done. Errors as `apply`.
   * @param asked the wish that this lift is allowed to end, as its caller saw it (`FenceStatus.asked`); null: it saw none
   * @throws `fence-asked-again` when another one is on record by now; nothing was lifted
   */
  lift(cause: FenceCause, asked: number | null): Promise<readonly string[]>
  status(): Promise<FenceStatus>
  close(): Promise<void>
}

/** What a fence that changes something outside the region's database has to remember of it: where it stands and what was there before. */
export type FenceNote = {
  readonly state: Exclude<FenceState, 'lifted' | 'unknown'>
  readonly cause: FenceCause
  readonly asked: number
  /** ISO 8601. */
  readonly since: string
  /** What `lift` needs to bring back. */
  readonly former: Json
}

/**
 * Remembers the notes of one fence across processes: on this machine first (flushed to disk before it returns), then in the control plane
 * when it answers. @throws `fence-failed` when it could be kept nowhere
 */
export interface FenceNotes {
  /** The newest note that can be read, with what every note since the last lifting has to bring back; null: none was made, or it was lifted. */
  read(): Promise<FenceNote | null>
  /** null: lifted. */
  write(note: FenceNote | null): Promise<void>
}

/** What is told of fences, in order. `noted`: what a fence outside the region's database needs to be lifted again; `found-lifted`: it should stand and does not. */
export const FENCE_EVENTS = [
  'apply-started',
  'applied',
  'apply-failed',
  'lift-started',
  'lifted',
  'lift-failed',
  'rotated',
  'found-lifted',
  'noted',
] as const
export type FenceEvent = (typeof FENCE_EVENTS)[number]

/** One line of the fence log: on the machine where it happened first, then in the control plane. */
export type FenceEntry = {
  /** uuid: the control plane takes each entry once, however often it is handed over. */
  readonly id: string
  readonly region: string
  readonly fence: string
  readonly kind: FenceKind
  readonly event: FenceEvent
  /** ISO 8601, by the clock of the machine where it happened. */
  readonly at: string
  readonly by: string
  readonly host: string
  readonly runId: string | null
  readonly reason: string | null
  readonly detail: Json
}

/** `recordedAt`: when it reached the control plane, by the control plane's clock. */
export type LoggedFence = FenceEntry & { readonly recordedAt: string; readonly recordedBy: string }

/** An entry that stands on this machine and is not handed over, and why. */
export type AsideEntry = { readonly entry: FenceEntry; readonly why: string }

/** The fence log: this machine's file first, so that a fence can be applied while the control plane is down. */
export interface FenceJournal {
  /** Where it stands on this machine. */
  readonly file: string
  /** Flushed to this machine's disk when it returns. @throws `fence-failed` when it could not be */
  keep(entries: readonly FenceEntry[]): Promise<void>
  /**
   * Hands over what stands on this machine only. Returns how many entries that were; null: not all, for a cause that `refusal` says: whatever
   * it is, no fence waits for it. It is not tried a second time by one process unless `again`. An entry that the control plane will never take is
   * set aside, and the others go on.
   */
  handOver(again?: boolean): Promise<number | null>
  /** Why the control plane did not take what it was last handed; null when it did, or was not asked. */
  refusal(): string | null
  /** Entries of this machine that the control plane has not confirmed, and is still to get. */
  pending(): Promise<readonly FenceEntry[]>
  /** Entries of this machine that the control plane does not get. */
  aside(): Promise<readonly AsideEntry[]>
  /** The last notes of a fence, oldest first: the control plane's where it answers, and those that are on this machine only. */
  notes(region: string, fence: string): Promise<readonly FenceEntry[]>
  /** The newest entry of each fence, notes aside, and whose view that is. */
  told(): Promise<{ readonly entries: readonly FenceEntry[]; readonly from: 'control plane' | 'this machine' }>
}
