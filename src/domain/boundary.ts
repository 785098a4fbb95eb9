import type { Endpoint } from './config.ts'
import type { FenceKind } from './fence.ts'
import type { OwnershipState } from './ownership.ts'

/** SQLSTATEs the boundary raises. The service and our own probes tell causes apart by these, never by text. */
export const SQLSTATE = {
  /** This region is not the key's home, or the key is draining, fenced or catching up. */
  notHome: 'HR001',
  /** The caller presented an epoch that is not the current one (or none where one is required). */
  staleEpoch: 'HR002',
  /** The key is unknown here and no default home is configured. */
  unknownKey: 'HR003',
  /** The region's lease is over (where leases are on). */
  leaseOver: 'HR004',
  /** TRUNCATE of a guarded table. */
  truncate: 'HR005',
  /** The boundary's own tables were touched outside its functions. */
  misuse: 'HR006',
  /** The key is not in the state or epoch the operation expected. */
  unexpectedState: 'HR007',
  /** A newer run token has been seen for the key: the caller is superseded and changed nothing. */
  superseded: 'HR008',
  /** The whole region is fenced. */
  regionFenced: 'HR009',
} as const

/** One key as a region's boundary knows it: its local copy of ownership. */
export type BoundaryRow = {
  readonly key: string
  readonly homeRegion: string
  readonly epoch: number
  readonly state: OwnershipState
  /** Highest run token the boundary has seen for the key; smaller ones are refused. */
  readonly token: number
  /** Id of the barrier event written by the fence that is in force, else null. */
  readonly barrierEventId: string | null
  /** True when a write for this key would be admitted here now (row present in `homeregion.writable`). */
  readonly writable: boolean
}

/** A transaction that holds the key's guard lock: it wrote, and has not ended. */
export type InFlightWrite = {
  /** null for a prepared transaction. */
  readonly pid: number | null
  readonly role: string | null
  readonly application: string | null
  /** `active`, `idle in transaction`, `prepared`, … */
  readonly state: string
  /** Age of its transaction, by the database's own clock. */
  readonly ageMs: number | null
  /** Global id of a prepared transaction, else null. */
  readonly gid: string | null
}

/** Counters of refused writes since the database started. About right after a crash, exact otherwise; compare two reads of one `since`. */
export type Rejections = {
  readonly notHome: number
  readonly draining: number
  readonly fenced: number
  readonly staleEpoch: number
  readonly unknownKey: number
  readonly truncate: number
  /** Replication consumers that wrote a key whose home is here: late events of an older epoch. */
  readonly apply: number
  /** Writes of keys at home here while the region was fenced as a whole. */
  readonly regionFenced: number
  /** Writes after the region's lease was over, or before it was ever granted. */
  readonly leaseOver: number
  /** ISO 8601: pg_postmaster_start_time(). */
  readonly since: string
}

/** Digest of one set of rows of a key; equal digests of both regions mean equal sets. */
export type Digest = {
  /** The table it was taken from, as configured. */
  readonly table: string
  readonly rows: number
  /** Sum or maximum that an operator can read: the highest aggregate version, or null for sets without one. */
  readonly highest: number | null
  readonly hash: string
}

/** What the fence returns; activation needs target >= position. */
export type Position = {
  readonly key: string
  readonly epoch: number
  readonly barrierEventId: string
  /** pg_current_wal_flush_lsn() read after the fence's commit had returned. */
  readonly lsn: string
  /** One digest per table with versions. */
  readonly versions: readonly Digest[]
  /** null where no idempotency table is configured. */
  readonly idempotency: Digest | null
}

/** Outcome of a write probe as a declared writer role against one guarded table, always rolled back. */
export type ProbeResult = {
  readonly writer: string
  readonly table: string
  /** `refused` needs the boundary's SQLSTATE; a transport error is `unknown`. */
  readonly outcome: 'admitted' | 'refused' | 'unknown'
  readonly sqlstate: string | null
  /** What the server said, without secrets. */
  readonly message: string
  /** Whom the server took the session for (session_user), null when none was opened: not the writer behind a pooler that hides it. */
  readonly role: string | null
  /** Isolation level the probe ran at. */
  readonly isolation: 'read committed' | 'repeatable read'
}

/** What one declared endpoint showed: another way to the region's data than the writers' own URLs. */
export type EndpointProbe = {
  readonly endpoint: string
  readonly kind: Endpoint['kind']
  /** Why it could not be looked at; null when it was. What it answered the writers stands in `probes` all the same. */
  readonly unseen: string | null
  /** False at a primary, and at a standby that was promoted. null: not seen. */
  readonly inRecovery: boolean | null
  /** Region that the boundary there belongs to. null: not seen. */
  readonly region: string | null
  /** The key as the boundary there knows it. */
  readonly row: BoundaryRow | null
  /** Fences of the whole region on record there as applied, by name, with since when. null: not seen, as through a pooler. */
  readonly fences: Readonly<Record<string, string>> | null
  /** One write as each writer into each guarded table, at READ COMMITTED. A standby refuses them with 25006. */
  readonly probes: readonly ProbeResult[]
}

/** A physical standby, by the primary that it streams from. */
export type Standby = {
  /** Its application_name; of one that is not connected, its replication slot. */
  readonly name: string
  readonly address: string | null
  /** `streaming`, `catchup`, or `disconnected`: the primary keeps WAL for it in a slot, and it may be promoted. */
  readonly state: string
  /** As the primary commits: `async`, `sync`, `quorum`, `potential`; null when it is not connected. */
  readonly sync: string | null
  /** null: it did not say, or the boundary's owner may not see it. */
  readonly flushLsn: string | null
  /** Its disk holds everything up to the LSN asked for: a promotion applies that before it takes writes. */
  readonly flushed: boolean
}

/** The standbys that the primary knows; those that stream from another standby are not among them. */
export type StandbyReport = { readonly lsn: string; readonly standbys: readonly Standby[] }

/** One way around the fence, from the catalogue. */
export type AuditFinding = {
  /** Machine name of the kind: `superuser`, `table-owner`, `guard-disabled`, `security-definer`, … */
  readonly kind: string
  /** Role, table or object it is about. */
  readonly subject: string
  /** What it is and why it gets around those fences. */
  readonly why: string
  /** Statement that closes it, or null where there is none. */
  readonly closes: string | null
  /** The fences it gets around. Only the boundary's stand in the way of moving a key; none: it is told for what may come of it. */
  readonly around: readonly FenceKind[]
  /**
   * True when an exception in the configuration names it with a reason; also for what cannot be closed (a superuser, the administrator's own
   * login) while no declared writer uses it and nobody is connected with it.
   */
  readonly accepted: boolean
}
