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

/** Where a new secret goes. Each gets it without its ever standing in an argument or an environment. */
export type SecretSink =
  /** Written with mode 0600, replaced in one step. */
  | { readonly file: string }
  /** argv of a command that reads the secret from its stdin. */
  | { readonly command: readonly string[] }
  /** Through kubectl, on its stdin. */
  | { readonly kubernetes: { readonly namespace: string; readonly secret: string; readonly key: string; readonly context: string | null } }
  /** Key/value store, version 2, over HTTP. */
  | {
      readonly vault: {
        readonly address: string
        readonly mount: string
        readonly path: string
        readonly key: string
        readonly token: SecretReference
      }
    }

export type HttpCall = { readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'; readonly url: string; readonly expectStatus: number }

/** A fence of a region beyond its boundary, which every region has. `name` is unique in the region and stands in commands and runbooks. */
export type FenceConfig = { readonly name: string } & (
  | { readonly kind: 'credentials'; readonly roles: readonly { readonly role: string; readonly sink: SecretSink }[] }
  | { readonly kind: 'read-only' }
  | {
      readonly kind: 'kafka'
      /** Login that may change ACLs on the region's own brokers; null: the region's. */
      readonly admin: KafkaLogin['sasl']
      readonly topics: readonly string[]
      readonly producers: readonly {
        /** `User:app-a` */
        readonly principal: string
        /** The producer's own login, for the refused write that proves the fence; null: it cannot be probed. */
        readonly login: KafkaLogin['sasl']
        readonly transactionalIds: readonly string[]
      }[]
    }
  | {
      readonly kind: 'exec'
      readonly apply: readonly string[]
      /** Ends with 0 when the fence stands, 1 when it does not; anything else is unknown. */
      readonly verify: readonly string[]
      readonly lift: readonly string[]
      readonly timeoutMs: number
    }
  | {
      readonly kind: 'http'
      readonly apply: HttpCall
      /** Answers with `expectStatus` when the fence stands; another answer: it does not; none, or one that says nothing of it (401, 403, 408, 429, 5xx): unknown. */
      readonly verify: HttpCall
      readonly lift: HttpCall
      /** Header name to the secret that is its value. */
      readonly headers: Readonly<Record<string, SecretReference>>
      readonly timeoutMs: number
    }
)

/** Another way to the region's data than the writers' own URLs; probed with each writer's login. */
export type Endpoint = {
  readonly name: string
  /** A standby must be in recovery and show the fence; a pooler must be refused like the primary. */
  readonly kind: 'pooler' | 'standby'
  readonly host: string
  readonly port: number
  /** null: the database of the writer's URL. */
  readonly database: string | null
}

export type RegionConfig = {
  readonly name: string
  readonly database: {
    /** Login with EXECUTE on the boundary's functions; used for everything but `init`. */
    readonly operator: DatabaseLogin
    /** Login that owns the guarded tables or is superuser; used by `init`, and by `rejoin` to replace rows. null: the operator is used. */
    readonly admin: DatabaseLogin | null
    /** Login that may alter the writers' roles, revoke their grants and end their sessions; null: the admin's, else the operator's. */
    readonly fencer: DatabaseLogin | null
    readonly writers: readonly Writer[]
    readonly endpoints: readonly Endpoint[]
  }
  readonly fences: readonly FenceConfig[]
  /** A time-bound right to write that the region cannot extend by itself; null: the region writes without one. */
  readonly lease: {
    readonly durationMs: number
    /** Added before anybody believes that a lease is over: the clocks' rates, and the time a commit may take after the last check. */
    readonly marginMs: number
    /** `stop`: the boundary refuses writes after the end. `keep`: it does not, an alarm is raised, and the lease proves nothing. */
    readonly onAgentOutage: 'stop' | 'keep'
  } | null
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
  /** Told when a fence that should stand is found lifted; the facts arrive as HOMEREGION_* variables. */
  readonly alarm: { readonly command: readonly string[]; readonly timeoutMs: number } | null
  readonly policy: {
    /** A run of more keys than this needs `--confirm-count N`. */
    readonly maxKeys: number
    /** How old evidence may be when activation is decided, by the engine's monotonic clock. */
    readonly evidenceMaxAgeMs: number
    /** Length of the run's lease in the control plane. */
    readonly runLeaseMs: number
    /** Our own deadline around each call to a region or the control plane. */
    readonly callTimeoutMs: number
    /** What may be lost in a forced failover, by pattern (`*` stands for any text), the first that matches; a key that matches none: `never`. */
    readonly loss: readonly { readonly keys: string; readonly rpo: Rpo }[]
    /** A source that any vantage point has reached more recently than this is not dark. */
    readonly darkAfterMs: number
    /** Who may approve, by control-plane login, how many it takes, and above how many keys; attested fences always need one. */
    readonly approvals: { readonly approvers: readonly string[]; readonly needed: number; readonly aboveKeys: number }
    /** How long an acknowledgement token of `plan failover` lives. */
    readonly ackTokenMs: number
    /** A region that was failed over is not moved back to sooner than this without a reason. */
    readonly coolDownMs: number
    /** null: a forced failover is a person's decision. Else the agent may run it, on a lease or external fence only. */
    readonly automatic: { readonly coolDownMs: number; readonly maxLossMs: number } | null
  }
  readonly agent: {
    /** host:port of /metrics and /healthz. */
    readonly listen: string
    readonly observeEveryMs: number
  }
  /** Command that applies one lost write again at the new owner; the write arrives as JSON on its stdin. null: only drop or export. */
  readonly reapply: { readonly command: readonly string[]; readonly timeoutMs: number } | null
}

/** What may be lost of a key: nothing, the writes of so many milliseconds, or whatever it takes. */
export type Rpo = 'never' | 'any' | { readonly atMostMs: number }

/** Regions with a database of their own beside this one: where all share one there is nobody else to ask. */
export function otherRegions({ topology, regions }: Pick<Config, 'topology' | 'regions'>, name: string): readonly string[] {
  return topology === 'shared' ? [] : regions.map(r => r.name).filter(other => other !== name)
}
