import { stringify } from 'yaml'
import { databaseUrl } from './databases.ts'
import type { KafkaServer } from './kafka.ts'
import { APP_DATABASE, CONTROL_PLANE_DATABASE, inboxGroup, OWNERSHIP_TOPIC, outboxTopic, REGIONS, type SandboxRegion } from './layout.ts'
import type { PostgresServer } from './postgres.ts'
import type { SandboxSecrets } from './sandbox-secrets.ts'

export type RegionServers = { readonly postgres: PostgresServer; readonly kafka: KafkaServer }
export type Servers = { readonly controlPlane: PostgresServer; readonly regions: Readonly<Record<SandboxRegion, RegionServers>> }

/** Durations of the policy section, as written in the file. */
export type SandboxPolicy = {
  readonly evidenceMaxAge?: string
  readonly runLease?: string
  readonly callTimeout?: string
  readonly darkAfter?: string
  readonly loss?: readonly { readonly keys: string; readonly rpo: string }[]
}

/** What the sandbox is set up with beside its servers. */
export type SandboxSettings = {
  readonly policy?: SandboxPolicy
  /** Of region-a; its boundary then writes nothing until an agent runs. */
  readonly lease?: { readonly duration: string; readonly margin: string; readonly onAgentOutage: 'stop' | 'keep' }
  readonly observeEvery?: string
}

/** `homeregion.yaml` of the sandbox: what an operator would write for this service. */
export function configText(servers: Servers, secrets: SandboxSecrets, settings: SandboxSettings): string {
  const { policy = {}, lease, observeEvery } = settings
  const superuser = (server: PostgresServer, database: string) => ({
    url: loginUrl(server, 'postgres', database),
    password: { file: server.passwordFile },
  })
  const login = (server: PostgresServer, role: string, database: string, secret: string) => ({
    url: loginUrl(server, role, database),
    password: { file: secrets.file(secret) },
  })
  const region = (name: SandboxRegion) => {
    const { postgres, kafka } = servers.regions[name]
    return {
      database: {
        operator: login(postgres, 'homeregion_operator', APP_DATABASE, `${name}.homeregion_operator`),
        admin: superuser(postgres, APP_DATABASE),
        writers: [login(postgres, 'app_writer', APP_DATABASE, `${name}.app_writer`)],
      },
      kafka: {
        brokers: kafka.brokers,
        sasl: {
          mechanism: 'scram-sha-256',
          username: 'homeregion_operator',
          password: { file: secrets.file(`${name}.kafka.homeregion_operator`) },
        },
        outboxTopic: outboxTopic(name),
        inboxGroup: inboxGroup(name),
      },
      fences: [credentialsFence(name, secrets), { kind: 'read-only' }, kafkaFence(name, secrets)],
      acceptedWriters: ACCEPTED_WRITERS,
      ...(lease === undefined || name !== 'region-a' ? {} : { lease }),
    }
  }
  const config = {
    service: 'sandbox',
    topology: 'independent',
    controlPlane: {
      ...login(servers.controlPlane, 'homeregion_operator', CONTROL_PLANE_DATABASE, 'control-plane.homeregion_operator'),
      admin: superuser(servers.controlPlane, CONTROL_PLANE_DATABASE),
    },
    regions: Object.fromEntries(REGIONS.map(name => [name, region(name)])),
    tables: [
      { table: 'public.account', key: 'tenant_id', version: { aggregate: 'account_id', column: 'version' } },
      { table: 'public.invoice', key: 'tenant_id' },
    ],
    outbox: { table: 'public.outbox', key: 'tenant_id' },
    inbox: { table: 'public.inbox', key: 'tenant_id' },
    idempotency: { table: 'public.idempotency', key: 'tenant_id', id: 'idempotency_key' },
    transport: { relay: 'polling', mirror: 'none' },
    ownership: { topic: OWNERSHIP_TOPIC },
    policy,
    ...(observeEvery === undefined ? {} : { agent: { observeEvery } }),
  }
  const header = '# Written by `homeregion sandbox up`; written again at the next one.\n'
  return header + stringify(config, { aliasDuplicateObjects: false, lineWidth: 0 })
}

/** The new secret goes where the service reads it at its next login. */
function credentialsFence(region: SandboxRegion, secrets: SandboxSecrets) {
  return { kind: 'credentials', roles: [{ role: 'app_writer', sink: { file: secrets.file(`${region}.app_writer`) } }] }
}

/** Stops the region's relay, which publishes with the service's own login, at the region's own broker. */
function kafkaFence(region: SandboxRegion, secrets: SandboxSecrets) {
  const login = { mechanism: 'scram-sha-256', username: 'app_service', password: { file: secrets.file(`${region}.kafka.app_service`) } }
  return { kind: 'kafka', producers: [{ principal: 'User:app_service', login }] }
}

// What the audit of writers finds in any fresh database, and why it is no danger here.
const ACCEPTED_WRITERS = [{ kind: 'superuser', subject: 'postgres', reason: 'sets the sandbox up; no service logs in with it' }] as const

export function loginUrl(server: PostgresServer, role: string, database: string): string {
  const url = new URL(databaseUrl(server.adminUrl, database))
  url.username = role
  url.password = ''
  return url.toString()
}
