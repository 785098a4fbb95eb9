/** What an operator may decide about an event in quarantine: let it go, have it applied again at the new owner, or close it by hand. */
export const QUARANTINE_DECISIONS = ['drop', 'reapply', 'exported'] as const
export type QuarantineDecision = (typeof QUARANTINE_DECISIONS)[number]

/** An event of an older epoch that arrived after its key had come home: kept, not applied. */
export type QuarantinedEvent = {
  /** Order of arrival in this region; what `after` pages by. */
  readonly position: string
  readonly eventId: string
  readonly key: string
  readonly ownerEpoch: number
  /** Epoch that the key had come home under when the event arrived. */
  readonly currentEpoch: number
  /** As the envelope says, like the fields below; null where it does not say, or not readably. */
  readonly sourceRegion: string | null
  readonly homeRegion: string | null
  readonly aggregateType: string | null
  readonly aggregateId: string | null
  readonly aggregateVersion: number | null
  readonly eventType: string | null
  /** ISO 8601, by the source's clock. */
  readonly occurredAt: string | null
  /** The event's headers by name. */
  readonly envelope: Readonly<Record<string, unknown>>
  /** JSON as PostgreSQL keeps it, as text: a number in it may be longer than JavaScript's. A value that was no JSON is in `homeregion.base64`. */
  readonly payload: string | null
  /** ISO 8601, by the region's clock. */
  readonly quarantinedAt: string
  /** null until an operator has decided. */
  readonly decided: {
    readonly runId: string
    readonly decision: QuarantineDecision
    readonly reason: string
    /** Login of the region's database. */
    readonly by: string
    /** ISO 8601. */
    readonly at: string
  } | null
}

export type QuarantineFilter = { readonly key?: string; readonly undecided?: boolean; readonly limit: number; readonly after?: string }

/** An order to close some of them; events that are decided already keep what was decided. */
export type QuarantineOrder = { readonly runId: string; readonly decision: QuarantineDecision; readonly reason: string }
