import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { NO_FAILOVER } from '../../sandbox/config-defaults.ts'
import { type PostgresServer, startPostgres } from '../../sandbox/postgres.ts'
import type { PostgresVersion } from '../../sandbox/postgres-binaries.ts'
import { createControlPlane } from '../../src/adapters/control-plane/control-plane-store.ts'
import { installControlPlane } from '../../src/adapters/control-plane/install.ts'
import type { Secrets } from '../../src/adapters/postgres/connection.ts'
import type { CheckName } from '../../src/domain/checks.ts'
import type { Config } from '../../src/domain/config.ts'
import type { Evidence, Verdict } from '../../src/domain/evidence.ts'
import { type ActivationPermit, decideActivation } from '../../src/domain/interlock.ts'
import type { Holder, RunLease } from '../../src/domain/journal.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { Plan } from '../../src/domain/plan.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'

export const HOLDER: Holder = { host: 'alpha', pid: 100, user: 'ada' }
export const OTHER: Holder = { host: 'beta', pid: 200, user: 'bob' }
export const REQUIRED = ['fence-holds', 'barrier-applied', 'versions-equal', 'idempotency-carried'] as const satisfies readonly CheckName[]
const OPERATOR = 'homeregion_operator'
const PASSWORD = 'operator-of-a-throwaway-cluster'

export type Fixture = {
  readonly config: Config
  readonly secrets: Secrets
  /** A store over its own session; closed by `stop`. */
  store(changes?: Partial<Config>): ControlPlane
  /** A raw session as the superuser or as the operator; closed by `stop`. */
  raw(role: 'admin' | 'operator'): Promise<pg.Client>
  readonly server: PostgresServer
  stop(): Promise<void>
}

/** A throwaway cluster with the control plane installed. */
export async function startFixture(options: { version?: PostgresVersion; install?: boolean } = {}): Promise<Fixture> {
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-control-plane-'))
  const server = await startPostgres({ dir: join(dir, 'pg'), ...(options.version === undefined ? {} : { version: options.version }) })
  const remove = async () => {
    await server.stop()
    rmSync(dir, { recursive: true, force: true })
  }
  const closing: (() => Promise<void>)[] = []
  const config = controlPlaneConfig(server)
  const password = decodeURIComponent(new URL(server.adminUrl).password)
  const secrets: Secrets = { read: async reference => ('env' in reference && reference.env === 'ADMIN' ? password : PASSWORD) }
  try {
    await createDatabase(server)
    if (options.install !== false) await installControlPlane({ config, secrets, dryRun: false })
  } catch (error) {
    // Nobody else knows of the server yet.
    await remove()
    throw error
  }
  return {
    config,
    secrets,
    server,
    store: changes => {
      const store = createControlPlane({ ...config, ...changes }, secrets)
      closing.push(async () => {
        await store.close()
      })
      return store
    },
    raw: async role => {
      const url = new URL(role === 'admin' ? server.adminUrl : config.controlPlane.operator.url)
      url.pathname = '/control'
      if (role === 'operator') url.password = PASSWORD
      const client = new pg.Client({ connectionString: url.href })
      client.on('error', () => undefined)
      await client.connect()
      closing.push(async () => {
        await client.end()
      })
      return client
    },
    stop: async () => {
      await Promise.allSettled(closing.map(async close => await close()))
      await remove()
    },
  }
}

async function createDatabase(server: PostgresServer): Promise<void> {
  const admin = new pg.Client({ connectionString: server.adminUrl })
  await admin.connect()
  await admin.query(`create role ${OPERATOR} login password '${PASSWORD}'`)
  await admin.query('create database control')
  await admin.end()
}

function controlPlaneConfig(server: PostgresServer): Config {
  const url = (user: string) => `postgresql://${user}@127.0.0.1:${server.port}/control`
  const columns = {
    ...{ key: 'tenant_id', eventId: 'event_id', aggregateType: 'aggregate_type', aggregateId: 'aggregate_id', eventType: 'event_type' },
    ...{ sourceRegion: 'source_region', homeRegion: 'home_region', ownerEpoch: 'owner_epoch', aggregateVersion: 'aggregate_version' },
    ...{ occurredAt: 'occurred_at', payload: 'payload', publishedAt: 'published_at' },
  }
  return {
    service: 'billing',
    topology: 'independent',
    controlPlane: {
      operator: { url: url(OPERATOR), password: { env: 'OPERATOR' } },
      admin: { url: url('postgres'), password: { env: 'ADMIN' } },
    },
    regions: [],
    guarded: [],
    outbox: { schema: 'public', table: 'outbox', columns },
    inbox: {
      schema: 'public',
      table: 'inbox',
      columns: { eventId: 'event_id', key: 'tenant_id', ownerEpoch: 'owner_epoch', appliedAt: 'applied_at' },
    },
    idempotency: { schema: 'public', table: 'idempotency', key: 'tenant_id', id: 'idempotency_key' },
    transport: { relay: 'polling', mirror: 'none' },
    ownership: { topic: 'homeregion.ownership', defaultHome: null },
    alarm: null,
    ...NO_FAILOVER,
    policy: { ...NO_FAILOVER.policy, maxKeys: 10, evidenceMaxAgeMs: 5_000, runLeaseMs: 15_000, callTimeoutMs: 5_000 },
  }
}

export function planFor(records: readonly OwnershipRecord[], target: string): Plan {
  return {
    id: randomUUID().slice(0, 12),
    pinned: {
      runbook: { name: 'transfer', intent: 'transfer', title: 'Move', steps: [] },
      text: 'steps: []',
      sha256: 'ab',
      origin: 'test',
    },
    moves: records.map(r => ({ key: r.key, source: r.homeRegion, target, epoch: r.epoch, seq: r.seq })),
    alreadyThere: [],
    dropped: [],
  }
}

export async function only(records: Promise<readonly OwnershipRecord[]>): Promise<OwnershipRecord> {
  const [first, ...others] = await records
  if (first === undefined || others.length > 0) throw new Error(`expected one record, got ${others.length + (first === undefined ? 0 : 1)}`)
  return first
}

/** Walks a key to CATCH_UP under the lease. */
export async function toCatchUp(store: ControlPlane, lease: RunLease, from: OwnershipRecord, target: string): Promise<OwnershipRecord> {
  const drained = await only(store.commit(lease, { ownership: [{ transition: 'drain', expected: from, target }] }))
  const fenced = await only(store.commit(lease, { ownership: [{ transition: 'fence', expected: drained }] }))
  return await only(store.commit(lease, { ownership: [{ transition: 'catch-up', expected: fenced }] }))
}

export function evidenceFor(lease: RunLease, key: string, attemptId: string | null, check: CheckName, verdict: Verdict = 'pass'): Evidence {
  return {
    ...{ check, runId: lease.runId, key, step: 'activate', attemptId, verdict },
    ...{ observed: 'as required', required: 'as required', observer: 'test' },
    asOf: new Date().toISOString(),
    asOfMonotonicMs: performance.now(),
  }
}

/** A genuine permit, minted by the interlock on passing evidence for `required`. */
export function permitFor(
  lease: RunLease,
  record: OwnershipRecord,
  attemptId: string,
  required: readonly CheckName[] = REQUIRED,
): ActivationPermit {
  const decision = decideActivation(
    record,
    required.map(check => evidenceFor(lease, record.key, attemptId, check)),
    { required, evidenceMaxAgeMs: 60_000 },
    {
      ...{ runId: lease.runId, key: record.key, targetRegion: record.targetRegion ?? '', epoch: record.epoch, attemptId },
      nowMonotonicMs: performance.now(),
    },
  )
  if (decision.permit === null) throw new Error(decision.refusals.join('; '))
  return decision.permit
}

/** Moves a key to `target` under a run of its own, and closes the run. */
export async function moveKey(
  store: ControlPlane,
  from: OwnershipRecord,
  target: string,
  reason: string | null = null,
): Promise<OwnershipRecord> {
  const lease = await store.openRun(planFor([from], target), HOLDER, reason)
  const ready = await toCatchUp(store, lease, from, target)
  const attempt = randomUUID()
  await store.commit(lease, { starts: [{ id: attempt, key: from.key, step: 'activate', action: 'activate' }] })
  const moved = await only(store.commit(lease, { activation: { expected: ready, permit: permitFor(lease, ready, attempt) } }))
  await store.commit(lease, { keyOutcomes: [{ key: from.key, outcome: 'moved' }], runState: 'DONE' })
  return moved
}
