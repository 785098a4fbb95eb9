import * as z from 'zod/mini'
import { policySchema } from './policy-schema.ts'
import { duration, name, text, url } from './scalar-schema.ts'

/**
 * The shape of homeregion.yaml, as an operator writes it. Free of transforms, so that the JSON Schema an editor completes from is made
 * of the same lines; `config-map.ts` turns it into `Config`.
 */
export const REGION_NAME = /^[a-z][a-z0-9-]{0,39}$/

const secret = z
  .union([
    z.strictObject({ env: z.string().check(z.regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'must be the name of an environment variable')) }),
    z.strictObject({ file: text }),
    z.strictObject({ command: z.array(text).check(z.minLength(1, 'needs at least the program')) }),
  ])
  .register(z.globalRegistry, { description: 'Where the secret is read from; never the secret itself.' })

const login = z.strictObject({ url, password: z.optional(secret) })

/** `"odd.name"` may be quoted; a name without a schema is in `public`. */
export const TABLE_NAME = /^(?:(?:"(?:[^"]|"")+"|[^".\s]+)\.)?(?:"(?:[^"]|"")+"|[^".\s]+)$/
const table = name.check(z.regex(TABLE_NAME, 'must be schema.table (a part with a dot or a space in it is put in double quotes)'))
const column = name

const argv = z.array(text).check(z.minLength(1, 'needs at least the program'))
const sasl = z.strictObject({
  mechanism: z._default(z.enum(['plain', 'scram-sha-256', 'scram-sha-512']), 'scram-sha-512'),
  username: name,
  password: secret,
})
const httpUrl = z.string().check(z.regex(/^https?:\/\/[^\s@]+$/, 'must be an http:// or https:// URL without a login'))

const sink = z
  .union([
    z.strictObject({ file: text }),
    z.strictObject({ command: argv }),
    z.strictObject({ kubernetes: z.strictObject({ namespace: name, secret: name, key: name, context: z.optional(name) }) }),
    z.strictObject({
      vault: z.strictObject({ address: httpUrl, mount: z._default(name, 'secret'), path: name, key: name, token: secret }),
    }),
  ])
  .register(z.globalRegistry, { description: 'Where the new secret of a role is put.' })

const call = (method: 'GET' | 'POST') =>
  z.strictObject({
    method: z._default(z.enum(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']), method),
    url: httpUrl,
    expectStatus: z._default(z.int().check(z.minimum(100), z.maximum(599)), 200),
  })

const fenceName = z
  .string()
  .check(z.regex(/^[a-z][a-z0-9-]{0,39}$/, 'must be lower-case letters, digits and -, a letter first, at most 40'))
const fence = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('credentials'),
    name: z._default(fenceName, 'credentials'),
    roles: z.array(z.strictObject({ role: name, sink })).check(z.minLength(1, 'needs at least one role')),
  }),
  z.strictObject({ kind: z.literal('read-only'), name: z._default(fenceName, 'read-only') }),
  z.strictObject({
    kind: z.literal('kafka'),
    name: z._default(fenceName, 'kafka'),
    admin: z.optional(sasl),
    /** Left out: the region's outbox topic. */
    topics: z.optional(z.array(name).check(z.minLength(1, 'needs at least one topic'))),
    producers: z
      .array(
        z.strictObject({
          principal: z.string().check(z.regex(/^User:\S+$/, 'must be User:name')),
          login: z.optional(sasl),
          transactionalIds: z._default(z.array(name), []),
        }),
      )
      .check(z.minLength(1, 'needs at least one producer')),
  }),
  z.strictObject({
    kind: z.literal('exec'),
    name: fenceName,
    apply: argv,
    verify: argv,
    lift: argv,
    timeout: z._default(duration, '30s'),
  }),
  z.strictObject({
    kind: z.literal('http'),
    name: fenceName,
    apply: call('POST'),
    verify: call('GET'),
    lift: call('POST'),
    headers: z._default(z.record(z.string(), secret), {}),
    timeout: z._default(duration, '30s'),
  }),
])

const region = z.strictObject({
  database: z.strictObject({
    operator: login,
    admin: z.optional(login),
    fencer: z.optional(login),
    endpoints: z._default(
      z.array(
        z.strictObject({
          name,
          kind: z.enum(['pooler', 'standby']),
          host: name,
          port: z._default(z.int().check(z.minimum(1), z.maximum(65_535)), 5432),
          database: z.optional(name),
        }),
      ),
      [],
    ),
    writers: z
      .array(z.strictObject({ url, password: z.optional(secret), role: z.optional(name) }))
      .check(z.minLength(1, 'needs at least one writer: the fence is proved by a refused write as each of them')),
  }),
  kafka: z.strictObject({
    brokers: z
      .array(z.string().check(z.regex(/^(?:[A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]):\d{1,5}$/, 'must be host:port')))
      .check(z.minLength(1, 'needs at least one broker')),
    ssl: z._default(z.boolean(), false),
    sasl: z.optional(sasl),
    outboxTopic: name,
    inboxGroup: name,
  }),
  fences: z._default(z.array(fence), []),
  lease: z.optional(
    z.strictObject({
      duration: z._default(duration, '30s'),
      margin: z._default(duration, '2s'),
      onAgentOutage: z.enum(['stop', 'keep']),
    }),
  ),
  acceptedWriters: z._default(
    z.array(z.strictObject({ kind: name, subject: name, reason: text })).register(z.globalRegistry, {
      description: 'Ways around the fence that are known and accepted, each with its reason.',
    }),
    [],
  ),
})

const outboxColumns = z.strictObject({
  eventId: z._default(column, 'event_id'),
  aggregateType: z._default(column, 'aggregate_type'),
  aggregateId: z._default(column, 'aggregate_id'),
  eventType: z._default(column, 'event_type'),
  sourceRegion: z._default(column, 'source_region'),
  homeRegion: z._default(column, 'home_region'),
  ownerEpoch: z._default(column, 'owner_epoch'),
  aggregateVersion: z._default(column, 'aggregate_version'),
  occurredAt: z._default(column, 'occurred_at'),
  payload: z._default(z.nullable(column), 'payload'),
  /** Left out: `published_at` with a polling relay, none with Debezium. */
  publishedAt: z.optional(z.nullable(column)),
})

const inboxColumns = z.strictObject({
  eventId: z._default(column, 'event_id'),
  ownerEpoch: z._default(column, 'owner_epoch'),
  appliedAt: z._default(column, 'applied_at'),
})

export const configSchema = z.strictObject({
  service: name,
  topology: z._default(z.enum(['independent', 'shared']), 'independent'),
  controlPlane: z.strictObject({ url, password: z.optional(secret), admin: z.optional(login) }),
  // The names are judged by a rule of their own: here a wrong one would hide everything below it.
  regions: z.record(z.string(), region).register(z.globalRegistry, { propertyNames: { pattern: REGION_NAME.source }, minProperties: 2 }),
  tables: z
    .array(
      z.strictObject({
        table,
        key: column,
        guard: z._default(z.enum(['row', 'statement']), 'row'),
        version: z.optional(z.strictObject({ aggregate: column, column })),
      }),
    )
    .check(z.minLength(1, 'needs at least one table: what is not guarded is not fenced')),
  outbox: z.strictObject({ table, key: column, columns: z.prefault(outboxColumns, {}) }),
  inbox: z.strictObject({ table, key: column, columns: z.prefault(inboxColumns, {}) }),
  idempotency: z.optional(z.strictObject({ table, key: column, id: column })),
  transport: z.prefault(
    z.strictObject({
      relay: z._default(z.enum(['polling', 'debezium']), 'polling'),
      mirror: z._default(z.enum(['none', 'mirrormaker']), 'none'),
    }),
    {},
  ),
  ownership: z.prefault(
    z.strictObject({ topic: z._default(name, 'homeregion.ownership'), defaultHome: z._default(z.nullable(name), null) }),
    {},
  ),
  alarm: z.optional(z.strictObject({ command: argv, timeout: z._default(duration, '30s') })),
  policy: policySchema,
  agent: z.prefault(
    z.strictObject({
      listen: z._default(
        z.string().check(z.regex(/^(?:[A-Za-z0-9._-]+|\[[0-9a-fA-F:]+\]):\d{1,5}$/, 'must be host:port')),
        '127.0.0.1:9464',
      ),
      observeEvery: z._default(duration, '1s'),
    }),
    {},
  ),
  reapply: z.optional(z.strictObject({ command: argv, timeout: z._default(duration, '30s') })),
})

export type ConfigFile = z.output<typeof configSchema>
