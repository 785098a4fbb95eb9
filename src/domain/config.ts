/**
 * The effective configuration, after flags > environment > file have been merged and secrets are references only.
 * `adapters/files/config-file.ts` parses and validates it; everything else reads these types.
 */
export type SecretReference =
  | { readonly env: string }
  | { readonly file: string }
  /** argv of a command whose first line of stdout is the secret. */
  | { readonly command: readonly string[] }

/** A login: `url` never contains a password. */
export type DatabaseLogin = {
  readonly url: string
  readonly password: SecretReference | null
}

export type Writer = DatabaseLogin & {
  /** Role name in the region's database; the user of `url`. */
  readonly role: string
}

/** `schema.table` as written by the operator, already split; both parts are unquoted names and are always quoted in SQL. */
export type TableName = { readonly schema: string; readonly table: string }

export type GuardedTable = TableName & {
  /** Column that holds the ownership key (text, bigint or uuid). */
  readonly key: string
  /** Row triggers by default; statement triggers for bulk-loaded tables. */
  readonly guard: 'row' | 'statement'
  /** Columns by which both regions' rows are compared; null: the table takes no part in `versions-equal`. */
  readonly versions: { readonly aggregate: string; readonly version: string } | null
}

export type OutboxContract = TableName & {
  readonly columns: {
    readonly key: string
    readonly eventId: string
    readonly aggregateType: string
    readonly aggregateId: string
    readonly eventType: string
    readonly sourceRegion: string
    readonly homeRegion: string
    readonly ownerEpoch: string
    readonly aggregateVersion: string
    readonly occurredAt: string
    readonly payload: string | null
    /** Set by a polling relay when the broker acknowledged the event; null where the relay is Debezium. */
    readonly publishedAt: string | null
  }
}

export type InboxContract = TableName & {
  readonly columns: {
    readonly eventId: string
    readonly key: string
    readonly ownerEpoch: string
    /** Time the event was applied, by the target's clock. */
    readonly appliedAt: string
  }
}

export type IdempotencyContract = TableName & { readonly key: string; readonly id: string }

export type KafkaLogin = {
  readonly brokers: readonly string[]
  readonly ssl: boolean
  readonly sasl: {
    readonly mechanism: 'plain' | 'scram-sha-256' | 'scram-sha-512'
    readonly username: string
    readonly password: SecretReference
  } | null
}

export type RegionConfig = {
  readonly name: string
  readonly database: {
    /** Login with EXECUTE on the boundary's functions; used for everything but `init`. */
    readonly operator: DatabaseLogin
    /** Login that owns the guarded tables or is superuser; used by `init` only. null: the operator is used. */
    readonly admin: DatabaseLogin | null
    readonly writers: readonly Writer[]
  }
  readonly kafka: KafkaLogin & {
    /** Topic the region's relay publishes its outbox to. */
    readonly outboxTopic: string
    /** Consumer group of this region's inbox (it reads the other regions' outbox topics). */
    readonly inboxGroup: string
  }
  /** Ways around the fence that the operators accept, each with its reason. */
  readonly acceptedWriters: readonly { readonly kind: string; readonly subject: string; readonly reason: string }[]
}

export type Config = {
  /** Name of the service, shown in titles. */
  readonly service: string
  readonly topology: 'independent' | 'shared'
  readonly controlPlane: { readonly operator: DatabaseLogin; readonly admin: DatabaseLogin | null }
  readonly regions: readonly RegionConfig[]
  readonly guarded: readonly GuardedTable[]
  readonly outbox: OutboxContract
  readonly inbox: InboxContract
  readonly idempotency: IdempotencyContract | null
  readonly transport: { readonly relay: 'polling' | 'debezium'; readonly mirror: 'none' | 'mirrormaker' }
  readonly ownership: {
    /** Compacted topic on each region's Kafka that ownership is announced to. */
    readonly topic: string
    /** Home of keys that nobody registered; null: unknown keys may not be written. */
    readonly defaultHome: string | null
  }
  readonly policy: {
    /** A run of more keys than this needs `--confirm-count N`. */
    readonly maxKeys: number
    /** How old evidence may be when activation is decided, by the engine's monotonic clock. */
    readonly evidenceMaxAgeMs: number
    /** Length of the run's lease in the control plane. */
    readonly runLeaseMs: number
    /** Our own deadline around each call to a region or the control plane. */
    readonly callTimeoutMs: number
  }
}
