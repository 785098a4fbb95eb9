import type { Approval, ApprovalPolicy, ApprovalVerdict } from './approval.ts'
import type { OutsideFence } from './checks.ts'
import type { BegunDrill, UnfinishedDrill } from './drill.ts'
import type { Json } from './evidence.ts'
import type { RunLease } from './journal.ts'
import type { LastApplied, RegionObservation, Sight, UpperBound } from './loss.ts'

/** What the control plane keeps of leases, looks at regions, approvals, exiles, reconciliation and drills. Ages are by its clock. */

/** What one agent saw in one round. Times are how long ago by the agent's monotonic clock, since two machines' clocks are never compared. */
export type ObservationReport = {
  readonly observer: string
  readonly takenAgoMs: number
  readonly observations: readonly Omit<RegionObservation, 'ageMs' | 'observer'>[]
  /** Each try to reach something of a region; one that failed leaves the age of the last contact growing. */
  readonly contacts: readonly { readonly region: string; readonly what: Sight['what']; readonly reached: boolean }[]
}

/** The control plane's side of a region's lease. */
export type LeaseState = {
  readonly region: string
  /** Number of the last grant; rises with each. 0: none was ever made, so its being over proves nothing. */
  readonly generation: number
  /** The agent that asked for the last grant; null where there was none. */
  readonly grantedTo: string | null
  /** Until the last grant is over, its margin included; 0 or less: it is. */
  readonly leftMs: number
  readonly durationMs: number
  readonly marginMs: number
  /** The run that stopped the granting; null: it goes on. Together with `leftMs` <= 0 the lease is over for good. */
  readonly withheldBy: string | null
  /** The region's own word with its last grant: its boundary refuses writes after the end. Without it the lease's being over proves nothing. */
  readonly stops: boolean
  /**
   * The server that answers made the last grant, as the primary that it still is. Else another one may have granted since, in a place that nobody
   * sees, and the lease's being over proves nothing.
   */
  readonly grantsKnown: boolean
}

/** What a token of `plan failover` stands for. */
export type AckToken = {
  readonly hash: string
  readonly planId: string
  readonly keysSha256: string
  readonly estimateSha256: string
  readonly boundMs: number | 'any'
  /** 0 or less: it is over. */
  readonly leftMs: number
  /** The run that used it; null: none. */
  readonly usedBy: string | null
  /** The login it was given to: no other can use it. `mine`: it is this one. */
  readonly issuedTo: string
  readonly mine: boolean
}

/** A forced failover as it was committed. */
export type ForcedFailover = {
  readonly id: string
  readonly runId: string
  readonly source: string
  readonly target: string
  /** Which of the three fences from outside it stood on, and what was observed of it. */
  readonly fence: OutsideFence
  readonly fenceObserved: string
  readonly acknowledgement: { readonly kind: 'typed' | 'bound' | 'any' | 'token'; readonly boundMs: number | 'any'; readonly by: string }
  readonly estimateSha256: string
  readonly at: string
  /** Since then, by the control plane's clock. */
  readonly ageMs: number
  readonly by: string
  readonly keys: readonly ForcedKey[]
}

export type ForcedKey = {
  readonly key: string
  /** The epoch that was ended; the target owns the next. */
  readonly epoch: number
  /** At least so many: nobody could count them where the source's Kafka did not answer. */
  readonly recoverable: number
  readonly unknown: UpperBound
  readonly lastApplied: LastApplied | null
}

/** What has to be done before a region that was failed over may own something again, in this order. */
export const EXILE_STEPS = ['fenced', 'listed', 'level'] as const
export type ExileStep = (typeof EXILE_STEPS)[number]

/** A region that was failed over: it owns nothing and can be no target until it is back. Blocked keys stay recorded as its own. */
export type Exile = {
  readonly id: string
  readonly region: string
  /** Every run that took keys from it, oldest first. */
  readonly runIds: readonly string[]
  readonly since: string
  readonly done: readonly ExileStep[]
  /** Items of those runs that nobody has decided yet. */
  readonly undecided: number
  readonly endedAt: string | null
  readonly endedBy: string | null
  readonly endReason: string | null
}

/** What an agent writes as its reason when it fences a region in this exile: by it everybody knows later whose fence that is. */
export function exileFenceReason({ region, since }: Pick<Exile, 'region' | 'since'>): string {
  return `${region} is in exile since ${since} and answers again`
}

export const RECONCILE_KINDS = ['event', 'row', 'idempotency', 'phantom'] as const
/** `phantom`: an event was published, and the row it tells of was lost with a crashed database. */
export type ReconcileKind = (typeof RECONCILE_KINDS)[number]

export const RECONCILE_DECISIONS = ['dropped', 'reapplied', 'exported'] as const
export type ReconcileDecision = (typeof RECONCILE_DECISIONS)[number]

/** One write that exists at the former source only. */
export type ReconcileFinding = {
  /** Made of what was found, so that finding it again is no second item: an event id, a table with a primary key and a version. */
  readonly id: string
  readonly key: string
  readonly kind: ReconcileKind
  /** For reading: `invoice 4711, version 3`. */
  readonly subject: string
  readonly content: Json
}

export type ReconcileItem = ReconcileFinding & {
  readonly runId: string
  readonly foundAt: string
  /** null: nobody has decided. */
  readonly decision: ReconcileDecision | null
  readonly reason: string | null
  readonly decidedAt: string | null
  readonly decidedBy: string | null
}

export type ReconcileCount = { readonly runId: string; readonly found: number; readonly undecided: number }

export const DRILL_OUTCOMES = ['passed', 'missed-objective', 'failed', 'pre-empted'] as const
export type DrillOutcome = (typeof DRILL_OUTCOMES)[number]

export type DrillResult = {
  /** uuid; recording it again changes nothing. */
  readonly id: string
  readonly source: string
  readonly target: string
  readonly keys: number
  readonly outcome: DrillOutcome
  /** From the acknowledgement to the first write at the target; null: there was none. */
  readonly recoveryMs: number | null
  readonly objectiveMs: number | null
  /** Counted at the far consumers; null: not counted. */
  readonly duplicates: number | null
  readonly gaps: number | null
  readonly tookMs: number
  readonly detail: Json
}

export type Drill = DrillResult & { readonly at: string; readonly by: string }

/** The part of the control plane that forced failovers stand on. Errors and bounds as for `ControlPlane`. */
export interface FailoverControl {
  /** Keeps the newest look of each observer at each region, and the last contact of each vantage point. A late report never replaces a newer one. */
  recordObservation(report: ObservationReport): Promise<void>
  /** The newest of each observer. */
  observations(): Promise<readonly RegionObservation[]>
  sights(): Promise<readonly Sight[]>

  /** Takes or keeps the lead of all agents for so long. False: another agent has it. One leads at a time, by the control plane's clock. */
  leadAgents(agentId: string, forMs: number): Promise<boolean>
  /**
   * The agent's leave to tell the region an end: read the region's clock first, then ask, then tell the region that reading plus the duration
   * with this generation. When the answer is lost the region must not be told. From its commit on the region may write until then.
   * `above`: the newest grant the region knows. Each is committed here before its region hears of it, so that a control plane that knows less has
   * lost commits, and perhaps a forced failover from the region among them: it grants only once what it has on record was `compared` with the
   * other regions, and above what the region knows, since one that is not later would not be taken there.
   * Returns the grant's number, and whether the region is on record as one that stops at the end.
   * @throws `superseded` (another agent leads, or none does), `lease-withheld` (a run withholds it, or the region is in exile), `control-plane-behind`
   */
  grantLease(
    region: string,
    agentId: string,
    durationMs: number,
    marginMs: number,
    above?: number,
    compared?: boolean,
  ): Promise<{ readonly generation: number; readonly stops: boolean }>
  /** What the region answered to the agent's last grant. Nothing where another agent has granted since. */
  noteLeaseStops(region: string, agentId: string, stops: boolean): Promise<void>
  /**
   * No grant is made any more; from the commit on. Idempotent for the run. Returns the lease as it runs out: 0 grants ever made prove nothing.
   * Another open run may have it: then it stays that run's.
   * @throws `superseded`, `run-closed`, `interlock-refused` (the run's intent is transfer)
   */
  withholdLease(region: string, lease: RunLease): Promise<LeaseState>
  /**
   * Granting may go on: the run that withheld it lets go; in exile it stays withheld. `lease` null: for a run that is closed. Idempotent.
   * @throws `superseded`; for a run that is closed `lease-withheld` (a run that is open withholds it), `region-exiled`
   */
  releaseLease(region: string, lease: RunLease | null): Promise<void>
  leaseStates(): Promise<readonly LeaseState[]>

  /**
   * A token that acknowledges so much loss of these keys in a run of this plan: 80 random bits, shown once and stored as a hash; it lives for
   * `policy.ackTokenMs` and works once. `estimateSha256` is what was looked at when it was made.
   */
  issueAckToken(about: {
    readonly planId: string
    readonly keysSha256: string
    readonly estimateSha256: string
    readonly boundMs: number | 'any'
  }): Promise<string>
  /** What it stands for; null: it was never issued. */
  ackToken(token: string): Promise<AckToken | null>
  /** The last one that the run has; null: none. */
  ackTokenOf(runId: string): Promise<AckToken | null>
  /**
   * From now on the token is this run's, however long the run takes: its life is judged here. Idempotent for the run.
   * @throws `ack-token-refused` (never issued, over, of another plan, login or run), `superseded`, `run-closed`
   */
  redeemAckToken(lease: RunLease, hash: string): Promise<void>

  /**
   * The caller's login says yes or no to an open run, once. A rejection stands whatever others say.
   * `saidBefore`: this login had said the same, and its first word stands.
   * @throws `approval-refused` (the login began the run, is not among the approvers in force, or has said the opposite; or the run was rejected.
   *   `breakGlass` with a reason is for when nobody else is there: it passes the first two), `unknown-run`, `run-closed`
   */
  approve(
    runId: string,
    verdict: ApprovalVerdict,
    reason: string,
    breakGlass: boolean,
  ): Promise<Approval & { readonly saidBefore: boolean }>
  /** The one in force. */
  approvalPolicy(runId: string | null): Promise<ApprovalPolicy>
  /** Oldest first. */
  approvals(runId: string): Promise<readonly Approval[]>

  /** Newest first. */
  forcedFailovers(filter: { runId?: string; source?: string; limit: number }): Promise<readonly ForcedFailover[]>
  /** Open ones first, then the newest; `region`: only its own. */
  exiles(region?: string): Promise<readonly Exile[]>
  /** Says that a step towards the return is done. A later forced failover from the region takes `listed` and `level` back. Idempotent. @throws `region-exiled` when a step before it is not done */
  noteExile(region: string, step: ExileStep): Promise<void>
  /**
   * The region may own something again, and its lease may be granted. Idempotent.
   * @throws `region-exiled` while a step is not done or an item is not decided
   */
  endExile(region: string, reason: string): Promise<void>

  /** Adds what is not there yet; never changes what is. Something undecided takes `level` back from the exile that the run belongs to. */
  putReconcileItems(runId: string, items: readonly ReconcileFinding[]): Promise<void>
  /** Ordered by key and id; `after` pages by both. */
  reconcileItems(
    runId: string,
    filter: { key?: string; id?: string; undecided?: boolean; after?: { readonly key: string; readonly id: string }; limit: number },
  ): Promise<readonly ReconcileItem[]>
  /** How many items each of these runs has, and how many nobody has decided; in the order given. */
  reconcileCounts(runIds: readonly string[]): Promise<readonly ReconcileCount[]>
  /** Once; the same decision again changes nothing. @throws `epoch-moved` when it was decided otherwise, `unknown-run` when there is no such item */
  decideReconcileItem(runId: string, id: string, decision: ReconcileDecision, reason: string): Promise<ReconcileItem>

  /** Before its first move: what has to be brought back if its process dies. Idempotent by its id. */
  beginDrill(drill: BegunDrill): Promise<void>
  /** Begun, and its keys are not where they have to return to, oldest first; one that is under way is among them. Keys that somebody moved since are not. */
  unfinishedDrills(): Promise<readonly UnfinishedDrill[]>
  recordDrill(result: DrillResult): Promise<void>
  /** Asks the drill that has this run to give its keys up. On record; the drill looks for it and lets go by itself. Asking twice changes nothing. */
  askDrillToYield(runId: string): Promise<void>
  /** The login that asked for it, null while nobody has. */
  drillAskedToYield(runId: string): Promise<string | null>
  /** The newest of each pair of regions. */
  lastDrills(): Promise<readonly Drill[]>
}
