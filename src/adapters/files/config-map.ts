import { resolve } from 'node:path'
import type {
  Config,
  DatabaseLogin,
  FenceConfig,
  KafkaLogin,
  RegionConfig,
  Rpo,
  SecretReference,
  SecretSink,
  TableName,
} from '../../domain/config.ts'
import { parseDuration } from '../../domain/duration.ts'
import type { ConfigFile } from './config-schema.ts'

type FileRegion = ConfigFile['regions'][string]
type FileLogin = { readonly url: string; readonly password?: SecretReference | undefined }

/** `Config` from a file that has been checked. `folder` is the file's own: relative secret files start there. */
export function toConfig(file: ConfigFile, folder: string): Config {
  const login = ({ url, password }: FileLogin): DatabaseLogin => ({ url, password: secret(password, folder) })
  const { outbox, inbox, idempotency, transport } = file
  return {
    service: file.service,
    topology: file.topology,
    controlPlane: {
      operator: login(file.controlPlane),
      admin: file.controlPlane.admin === undefined ? null : login(file.controlPlane.admin),
    },
    regions: Object.entries(file.regions).map(([name, region]) => toRegion(name, region, folder)),
    guarded: file.tables.map(({ table, key, guard, version }) => ({
      ...splitTable(table),
      key,
      guard,
      versions: version === undefined ? null : { aggregate: version.aggregate, version: version.column },
    })),
    outbox: {
      ...splitTable(outbox.table),
      columns: { ...outbox.columns, key: outbox.key, publishedAt: publishedAt(outbox.columns.publishedAt, transport.relay) },
    },
    inbox: { ...splitTable(inbox.table), columns: { ...inbox.columns, key: inbox.key } },
    idempotency: idempotency === undefined ? null : { ...splitTable(idempotency.table), key: idempotency.key, id: idempotency.id },
    transport,
    ownership: file.ownership,
    alarm: file.alarm === undefined ? null : { command: file.alarm.command, timeoutMs: milliseconds(file.alarm.timeout) },
    policy: {
      maxKeys: file.policy.maxKeys,
      evidenceMaxAgeMs: milliseconds(file.policy.evidenceMaxAge),
      runLeaseMs: milliseconds(file.policy.runLease),
      callTimeoutMs: milliseconds(file.policy.callTimeout),
      loss: file.policy.loss.map(({ keys, rpo }) => ({ keys, rpo: toRpo(rpo) })),
      darkAfterMs: milliseconds(file.policy.darkAfter),
      approvals: file.policy.approvals,
      ackTokenMs: milliseconds(file.policy.ackToken),
      coolDownMs: milliseconds(file.policy.coolDown),
      automatic:
        file.policy.automatic === undefined
          ? null
          : { coolDownMs: milliseconds(file.policy.automatic.coolDown), maxLossMs: milliseconds(file.policy.automatic.maxLoss) },
    },
    agent: { listen: file.agent.listen, observeEveryMs: milliseconds(file.agent.observeEvery) },
    reapply: file.reapply === undefined ? null : { command: file.reapply.command, timeoutMs: milliseconds(file.reapply.timeout) },
  }
}

function toRegion(name: string, { database, kafka, fences, lease, acceptedWriters }: FileRegion, folder: string): RegionConfig {
  const login = ({ url, password }: FileLogin): DatabaseLogin => ({ url, password: secret(password, folder) })
  return {
    name,
    database: {
      operator: login(database.operator),
      admin: database.admin === undefined ? null : login(database.admin),
      fencer: database.fencer === undefined ? null : login(database.fencer),
      writers: database.writers.map(writer => ({ ...login(writer), role: writer.role ?? userOf(writer.url) })),
      endpoints: database.endpoints.map(endpoint => ({ ...endpoint, database: endpoint.database ?? null })),
    },
    fences: fences.map(fence => toFence(fence, kafka.outboxTopic, folder)),
    lease:
      lease === undefined
        ? null
        : { durationMs: milliseconds(lease.duration), marginMs: milliseconds(lease.margin), onAgentOutage: lease.onAgentOutage },
    kafka: {
      brokers: kafka.brokers,
      ssl: kafka.ssl,
      sasl: sasl(kafka.sasl, folder),
      outboxTopic: kafka.outboxTopic,
      inboxGroup: kafka.inboxGroup,
    },
    acceptedWriters,
  }
}

function toRpo(written: string): Rpo {
  return written === 'never' || written === 'any' ? written : { atMostMs: milliseconds(written) }
}

type FileFence = FileRegion['fences'][number]

function toFence(fence: FileFence, outboxTopic: string, folder: string): FenceConfig {
  switch (fence.kind) {
    case 'credentials':
      return { ...fence, roles: fence.roles.map(({ role, sink }) => ({ role, sink: toSink(sink, folder) })) }
    case 'read-only':
      return fence
    case 'kafka':
      return {
        ...fence,
        admin: sasl(fence.admin, folder),
        topics: fence.topics ?? [outboxTopic],
        producers: fence.producers.map(producer => ({ ...producer, login: sasl(producer.login, folder) })),
      }
    case 'exec': {
      const { timeout, ...rest } = fence
      return { ...rest, timeoutMs: milliseconds(timeout) }
    }
    case 'http': {
      const { timeout, headers, ...rest } = fence
      const values = Object.fromEntries(Object.entries(headers).map(([name, reference]) => [name, secret(reference, folder)]))
      return { ...rest, headers: values, timeoutMs: milliseconds(timeout) }
    }
  }
}

function toSink(sink: Extract<FileFence, { kind: 'credentials' }>['roles'][number]['sink'], folder: string): SecretSink {
  if ('file' in sink) return { file: resolve(folder, sink.file) }
  if ('kubernetes' in sink) return { kubernetes: { ...sink.kubernetes, context: sink.kubernetes.context ?? null } }
  if ('vault' in sink) return { vault: { ...sink.vault, token: secret(sink.vault.token, folder) } }
  return sink
}

function sasl(login: FileRegion['kafka']['sasl'], folder: string): KafkaLogin['sasl'] {
  return login === undefined ? null : { ...login, password: secret(login.password, folder) }
}

function secret(reference: SecretReference, folder: string): SecretReference
function secret(reference: SecretReference | undefined, folder: string): SecretReference | null
function secret(reference: SecretReference | undefined, folder: string): SecretReference | null {
  if (reference === undefined) return null
  return 'file' in reference ? { file: resolve(folder, reference.file) } : reference
}

function publishedAt(column: string | null | undefined, relay: 'polling' | 'debezium'): string | null {
  return column === undefined ? (relay === 'polling' ? 'published_at' : null) : column
}

function milliseconds(duration: string): number {
  return parseDuration(duration) ?? 0
}

/** Names are taken as they are written, upper case included: they are always quoted in SQL. */
export function splitTable(written: string): TableName {
  const parts = [...written.matchAll(/"((?:[^"]|"")+)"|([^".]+)/g)].map(m => m[1]?.replaceAll('""', '"') ?? m[2] ?? '')
  const [first = '', second] = parts
  return second === undefined ? { schema: 'public', table: first } : { schema: first, table: second }
}

export function userOf(url: string): string {
  return decodeURIComponent(new URL(url).username)
}
