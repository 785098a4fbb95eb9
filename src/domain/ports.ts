/**
 * What the engine needs of the world. Adapters implement these; tests may too. Every method bounds its own time by the
 * configured call timeout, and throws `HomeregionError`: `*-unreachable` when the call surely had no effect, `outcome-unknown`
 * when a write may have happened. Nothing here takes or returns a secret.
 */
import type {
  AuditFinding,
  BoundaryRow,
  Digest,
  EndpointProbe,
  InFlightWrite,
  Position,
  ProbeResult,
  Rejections,
  StandbyReport,
} from './boundary.ts'
import type { Evidence, Json } from './evidence.ts'
import type { FailoverControl } from './failover.ts'
import type { FenceEntry, FenceEvent, LoggedFence } from './fence.ts'
import type { Attempt, AuditEntry, Holder, JournalChange, Run, RunLease, RunState } from './journal.ts'
import type { LastApplied } from './loss.ts'
import type { OwnershipRecord } from './ownership.ts'
import type { Plan } from './plan.ts'
import type { QuarantinedEvent, QuarantineFilter, QuarantineOrder } from './quarantine.ts'
import type { RejoinControl } from './rejoin.ts'

export type LogRow = OwnershipRecord & { readonly transition: string }

export type ControlPlaneFacts = {
  /** null when it is not installed. */
  readonly version: number | null
  readonly serverVersion: string
  readonly inRecovery: boolean
  readonly readOnly: boolean
  /** What a commit waits for; anything but `on`, `remote_write` or `remote_apply` can lose a commit that was answered. */
  readonly synchronousCommit: string
  /** Missing or altered tables, constraints and triggers; the transition table of the tool against the database's. Empty when all stand. */
  readonly schemaProblems: readonly string[]
  /** Privileges the operator login lacks, and those it has and should not. */
  readonly privilegeProblems: readonly string[]
}

export interface ControlPlane extends FailoverControl, RejoinControl {
  /** Records of the keys that are registered, in no particular order. */
  ownership(keys: readonly string[]): Promise<readonly OwnershipRecord[]>
  /** Ordered by key; `after` pages. */
  listOwnership(filter: { homeRegion?: string; state?: string; after?: string; limit: number }): Promise<readonly OwnershipRecord[]>
  /** Counts by home region and state, from indexes. */
  countOwnership(): Promise<readonly { homeRegion: string; state: string; keys: number }[]>
  /** Log of one key, oldest first. */
  history(key: string): Promise<readonly LogRow[]>
  /** Registers all or none. @throws `key-exists` */
  register(keys: readonly { key: string; homeRegion: string }[]): Promise<readonly OwnershipRecord[]>

  /**
   * Pins the plan and takes its keys. `seize`, for intent failover only: keys that other runs hold are taken too, in whatever state they are;
   * those runs go on until the forced commit closes them. One run at a time may be about to seize a key.
   * @throws `key-busy` (fields: runId, startedBy, startedAt), `plan-stale` when a record moved
   */
  openRun(plan: Plan, holder: Holder, reason: string | null, options?: { readonly seize: boolean }): Promise<RunLease>
  /** New token for an open run. Refused while another holder's lease is alive unless `force`. @throws `run-leased`, `run-closed`, `unknown-run` */
  takeRun(runId: string, holder: Holder, force: boolean): Promise<RunLease>
  /**
   * New token for a run this holder has, also when the answer to its last request for one was lost.
   * @throws `superseded` once another holder took the run, however long ago that one's lease ran out; `run-closed`
   */
  retakeRun(lease: RunLease, holder: Holder): Promise<RunLease>
  /** Extends the lease. @throws `superseded` */
  renew(lease: RunLease): Promise<void>
  /** Draws tokens until they are above this one, at most ten million. Nobody holds what was drawn: `retakeRun` gives the next one. */
  drawTokens(above: number): Promise<void>
  /** Ends the lease at once, so that the next operator need not wait for it; the run stays open. @throws `superseded` */
  release(lease: RunLease): Promise<void>
  /**
   * Commits one change of the journal in one transaction and one round trip.
   * Returns the records of the keys whose ownership it changed, as committed.
   * @throws `superseded`, `epoch-moved`, `interlock-refused`, `outcome-unknown` (the answer to the commit was lost)
   */
  commit(lease: RunLease, change: JournalChange): Promise<readonly OwnershipRecord[]>
  run(runId: string): Promise<Run | null>
  runs(filter: { states?: readonly RunState[]; key?: string; reasonBegins?: string; limit: number }): Promise<readonly Run[]>
  attempts(runId: string): Promise<readonly Attempt[]>
  evidence(runId: string): Promise<readonly (Evidence & { readonly recordedAt: string })[]>
  /** Which control plane this is, whatever its address: a uuid it got when it was made. */
  installation(): Promise<string>
  /** Appends to the fence log, all or none; entries it has already are left as they are. */
  logFence(entries: readonly FenceEntry[]): Promise<void>
  /** Newest first, in the order they reached the control plane. */
  fenceLog(filter: { region?: string; fence?: string; events?: readonly FenceEvent[]; limit: number }): Promise<readonly LoggedFence[]>
  /** The newest entry of each fence, notes aside: what stands, as far as the control plane was told. */
  fencesTold(): Promise<readonly LoggedFence[]>
  /** Newest first. */
  audit(limit: number): Promise<readonly AuditEntry[]>
  /** Recomputes the hash chain; null when it holds, else the first broken row. */
  auditBreak(): Promise<number | null>
  /** What `doctor` reports about the control plane itself. */
  facts(): Promise<ControlPlaneFacts>
  close(): Promise<void>
}

/** What a region's boundary goes by for all its keys at once. */
export type RegionConditions = {
  /** ISO 8601: since when the region's boundary is closed for all keys at once, null while it is not; and why. */
  readonly fencedSince: string | null
  readonly fencedReason: string | null
  /** The lease as the region knows it, left by the region's own clock; null: none was ever granted there. */
  readonly lease: { readonly generation: number; readonly leftMs: number } | null
  /** The boundary refuses writes once the lease is over, and before the first grant. */
  readonly writesNeedLease: boolean
}

export type RegionFacts = RegionConditions & {
  /** Region name baked into the boundary, null when it is not installed. */
  readonly region: string | null
  readonly boundaryVersion: number | null
  readonly serverVersion: string
  readonly inRecovery: boolean
  readonly readOnly: boolean
  /** Missing, disabled, altered or extra guards, one line each; empty when all stand. */
  readonly guardProblems: readonly string[]
  /** Privileges the operator login lacks. */
  readonly missingPrivileges: readonly string[]
  /** Above 0 a transaction can be prepared, and committed after everything that was checked. */
  readonly maxPreparedTransactions: number
}

export type Backlog = {
  /** Committed events of the key that have not left the outbox. */
  readonly count: number
  /** Age of the oldest by the database's own clock; null when there is none. */
  readonly oldestAgeMs: number | null
  readonly oldestEventId: string | null
}

/** What one way to a region's database was answered. `reached`: its primary is there, as far as that way can tell; `text` holds no secret. */
export type PathAnswer = { readonly reached: boolean; readonly text: string }

/** One configured way to a region's database; `name` null: the operator's own. A dead one may take its whole time to be told from a slow one. */
export type RegionPath = { readonly name: string | null; readonly tryIt: () => Promise<PathAnswer> }

/** What the control plane says of a key, as far as a region is asked whether it knows more. */
export type KnownRecord = Pick<OwnershipRecord, 'key' | 'homeRegion' | 'epoch'>

/** What other regions contradict the control plane in (null: nothing), and who did not answer. */
export type Comparison = { readonly contradicted: string | null; readonly silent: readonly string[] }

/** One region's own database: the boundary, its proofs, and the observations around it. All writes carry the run's token. */
export interface RegionDatabase {
  readonly region: string
  /** Opens the sessions it will need, the writers' included, before time matters. A writer that cannot log in shows in its probes. */
  warm(): Promise<void>
  facts(): Promise<RegionFacts>
  /** Every way to it that the configuration names (the operator's, writers', endpoints'), one for each address. */
  paths(): readonly RegionPath[]
  read(key: string): Promise<BoundaryRow | null>
  /** Keys that may be written here, or could be if no fence of the whole region stood, ordered by key; `after` pages. */
  homeKeys(page: { after: string | null; limit: number }): Promise<readonly BoundaryRow[]>
  /**
   * Rows that say what the control plane's records do not: a later epoch, or another home under the same one. Ordered by key,
   * `limit` at most; `count` is of all. Rows that are behind are no contradiction: a region is told of a move after it.
   */
  aheadOf(records: readonly KnownRecord[], limit: number): Promise<{ readonly count: number; readonly rows: readonly BoundaryRow[] }>
  /** The highest run token the region has seen for any of the keys; 0 for none. */
  highestToken(keys: readonly string[]): Promise<number>
  /** Raises the key's token so that anything a superseded operator still sends is refused; returns the row. Creates the row (not writable) for a key the region never saw. */
  claim(key: string, owner: { homeRegion: string; epoch: number }, token: number): Promise<BoundaryRow>
  /** ACTIVE -> DRAINING at `epoch`: from its commit on no new write is admitted. Idempotent. @throws `epoch-moved`, `superseded` */
  drain(key: string, epoch: number, token: number): Promise<BoundaryRow>
  /** Transactions that wrote the key and are still open. Empty only when the key's exclusive lock was really obtained within `waitMs`. */
  inFlight(key: string, waitMs: number): Promise<readonly InFlightWrite[]>
  /** DRAINING -> FENCED under the exclusive lock, with the barrier written through the outbox in the same transaction. Durable when it returns. Idempotent. */
  fence(key: string, epoch: number, token: number, barrierEventId: string): Promise<BoundaryRow>
  /** Makes this region the writable home at `epoch`. @throws `epoch-moved` when the boundary already knows a later one */
  open(key: string, epoch: number, token: number): Promise<BoundaryRow>
  /**
   * The same for many keys, all or none, in one round trip: a forced failover opens thousands. Returns the rows as they are now. Idempotent.
   * @throws as `open`, for the first key that cannot be opened
   */
  openMany(keys: readonly { readonly key: string; readonly epoch: number }[], token: number): Promise<readonly BoundaryRow[]>
  /** Records that another region is home; never makes the key writable here. */
  follow(key: string, homeRegion: string, epoch: number, token: number): Promise<BoundaryRow>
  /**
   * The same for many keys, all or none, in one round trip, each under the token it has: a region that comes back is told of thousands. Returns the
   * rows as they are now. Idempotent. @throws `epoch-moved` when the boundary knows a later epoch of one
   */
  followMany(
    keys: readonly { readonly key: string; readonly homeRegion: string; readonly epoch: number }[],
  ): Promise<readonly BoundaryRow[]>
  /**
   * Keys that the control plane holds as ACTIVE: writable at their home, copies elsewhere. Keys the region knows already stay as they are;
   * returns all of them as they are now. Register a key at the regions that are not its home first.
   */
  register(keys: readonly { key: string; homeRegion: string; epoch: number }[]): Promise<readonly BoundaryRow[]>
  /** What would keep every key from being written here, whatever its row says; two small reads in one round trip. */
  conditions(): Promise<RegionConditions>
  /** Position of a fenced key, in one round trip. */
  position(key: string, barrierEventId: string): Promise<Position>
  /** Digests only, for comparing the target with a position. */
  digests(key: string): Promise<{ readonly versions: readonly Digest[]; readonly idempotency: Digest | null }>
  /** Takes its snapshot after any `inFlight` call made before it has answered, so that both can be asked in one round trip. */
  unpublished(key: string): Promise<Backlog>
  /**
   * What this region holds of keys that are at home elsewhere, set-based: the highest version of each, and the age of the last event applied by
   * this database's clock. Keys of which nothing was ever applied are left out.
   */
  lastApplied(keys: readonly string[]): Promise<ReadonlyMap<string, LastApplied>>
  /** True only for an event that was applied or recorded; one that went into quarantine proves nothing of what was before it. */
  inboxHas(eventId: string): Promise<boolean>
  /**
   * Events of the key applied from elsewhere with an epoch below `epoch`, and the age of the newest by this database's clock; and how many of
   * such an epoch were not applied but put into quarantine.
   */
  delayedEvents(
    key: string,
    epoch: number,
  ): Promise<{ readonly count: number; readonly newestAgeMs: number | null; readonly quarantined: number }>
  /** Events of an older epoch that came after their key was home here, in the order of arrival; `after` pages by position. */
  quarantined(filter: QuarantineFilter): Promise<readonly QuarantinedEvent[]>
  /** `undecided`: those that no operator has decided about. */
  quarantineCount(): Promise<{ readonly total: number; readonly undecided: number }>
  /** Decides about those that are undecided; returns all of the events as they are now. Idempotent: a decision stands. */
  decideQuarantined(eventIds: readonly string[], order: QuarantineOrder): Promise<readonly QuarantinedEvent[]>
  /** Writes as each declared writer's real login into each guarded table, always rolled back. `epoch`: permit presented, null for none. */
  probeWrites(key: string, epoch: number | null, isolation: ProbeResult['isolation']): Promise<readonly ProbeResult[]>
  /** The same through each declared endpoint, with what it shows of the key. An endpoint that cannot be looked at is `unseen`, never left out. */
  probeEndpoints(key: string, epoch: number | null): Promise<readonly EndpointProbe[]>
  /** Physical standbys of this primary, and whether their disks hold everything up to `lsn`; null: up to what is on the primary's own now. */
  standbys(lsn: string | null): Promise<StandbyReport>
  rejections(): Promise<Rejections>
  /** Every way around the boundary that the catalogue shows. */
  auditWriters(): Promise<readonly AuditFinding[]>
  /** One statement of a runbook's `sql` action with bound parameters; returns the row count. */
  execute(statement: string, parameters: readonly (string | number)[]): Promise<number>
  close(): Promise<void>
}

export type PartitionEnd = { readonly partition: number; readonly end: string; readonly committed: string | null }

/** One region's Kafka, as an observer; and the announcement of ownership. */
export interface RegionStream {
  readonly region: string
  /** Broker ids that answered. */
  brokers(): Promise<readonly number[]>
  /** Ends of this region's outbox topic with what `group` has committed; `committed` null is no evidence, never caught up. Ends are last stable offsets. */
  outboxEnds(group: string): Promise<readonly PartitionEnd[]>
  /** Events of this region's outbox topic that `group` has not read yet, by key. Reads without joining a group, and commits nothing. */
  eventsBeyond(group: string): Promise<ReadonlyMap<string, number>>
  /** Partition of the outbox topic, of so many, that all events of the key go to; null where the relay's way of choosing it is not known. */
  partitionOf(key: string, partitions: number): number | null
  /** Compacted announcement of who owns the key; informs caches, authorises nothing. */
  announce(record: OwnershipRecord): Promise<void>
  close(): Promise<void>
}

export interface Clock {
  /** ISO 8601. */
  now(): string
  monotonicMs(): number
  /** Resolves early, without error, when `signal` aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

/** Runs a command of a runbook: argv and environment only, bounded in time and output. */
export interface Hooks {
  run(
    command: readonly string[],
    environment: Readonly<Record<string, string>>,
    timeoutMs: number,
  ): Promise<{ readonly code: number; readonly output: string }>
  request(method: string, url: string, body: Json, timeoutMs: number): Promise<{ readonly status: number }>
}

/** A place where a test may stop or kill the process; does nothing otherwise. */
export type FaultPoint = (name: string) => Promise<void>
