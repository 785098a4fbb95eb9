import type pg from 'pg'
import { accountApplier } from '../../sandbox/service-account.ts'
import { IDEMPOTENCY, INBOX } from '../../sandbox/service-tables.ts'
import { loadRunbook } from '../../src/adapters/files/runbook-file.ts'
import { createHooks } from '../../src/adapters/hooks/command-hooks.ts'
import type { Secrets } from '../../src/adapters/postgres/connection.ts'
import { createServicePool, type ServicePool } from '../../src/adapters/postgres/service-pool.ts'
import { createBoundaryFence } from '../../src/adapters/postgres-region/fences/boundary.ts'
import { createRecovery } from '../../src/adapters/postgres-region/recovery/recovery.ts'
import { systemClock } from '../../src/adapters/system/clock.ts'
import type { Config, RegionConfig } from '../../src/domain/config.ts'
import type { Fence } from '../../src/domain/fence.ts'
import type { ControlPlane, FaultPoint, RegionDatabase } from '../../src/domain/ports.ts'
import type { Recovery } from '../../src/domain/recovery.ts'
import type { RejoinParts } from '../../src/engine/rejoining.ts'
import { eventOf, headersOf } from '../../src/service/envelope.ts'
import { createInboxStore, type InboxStore } from '../../src/service/inbox-apply.ts'
import { LateEvents } from '../../src/service/inbox-quarantine.ts'
import { commitDirect, directWrite, epochIn } from '../e2e/direct-write.ts'
import { type RegionFixture, secrets, startRegion } from './boundary-fixture.ts'
import { HOLDER } from './control-plane-fixture.ts'
import { type ForcedFixture, failoverPlan, forcedChange, startForcedFixture } from './forced-fixture.ts'

const { runbook: RUNBOOK } = loadRunbook('rejoin')

export type Side = 'region-a' | 'region-b'

/** Two regions with the reference service's tables, and a control plane; events are carried by hand, so that a test says which. */
export type RejoinFixture = {
  readonly store: ControlPlane
  readonly recovery: Recovery
  database(side: Side): RegionDatabase
  fence(side: Side): Fence
  admin(side: Side): Promise<pg.Client>
  /** Its server is another one now: sessions of the tests' own are opened anew. */
  forget(side: Side): void
  /** Keys at home in region-a, known to both boundaries. */
  register(keys: readonly string[]): Promise<void>
  /** One write as the service makes it; throws when it is refused. */
  write(key: string, side: Side, account?: string): Promise<string>
  /** Has the other region take in the events of a key that it has not, up to so many; returns their outcomes. */
  deliver(from: Side, key: string, limit?: number): Promise<readonly string[]>
  /** The forced failover of these keys to region-b; returns the run. */
  force(keys: readonly string[]): Promise<string>
  parts(over?: Partial<RejoinParts>): RejoinParts & { readonly told: string[] }
  readonly regions: Readonly<Record<Side, RegionFixture>>
  stop(): Promise<void>
}

export async function startRejoinFixture(): Promise<RejoinFixture> {
  const [control, a, b]: [ForcedFixture, RegionFixture, RegionFixture] = await Promise.all([
    startForcedFixture(),
    startRegion({ name: 'region-a' }),
    startRegion({ name: 'region-b' }),
  ])
  const regions = { 'region-a': a, 'region-b': b }
  const withAdmin = (f: RegionFixture): RegionConfig => ({
    ...f.region,
    database: { ...f.region.database, admin: { url: f.region.database.admin?.url ?? '', password: { env: `ADMIN ${f.region.name}` } } },
  })
  const config: Config = { ...a.config, regions: [withAdmin(a), withAdmin(b)] }
  const both: Secrets = {
    read: async reference => {
      const name = 'env' in reference ? reference.env : ''
      const side = name === 'ADMIN region-a' ? a : name === 'ADMIN region-b' ? b : null
      return side === null ? await secrets.read() : decodeURIComponent(new URL(side.server.adminUrl).password)
    },
  }
  const store = control.store()
  const recovery = createRecovery(config, both)
  const fault: FaultPoint = () => Promise.resolve()
  const fences = {
    'region-a': createBoundaryFence(a.region, a.config, secrets, fault),
    'region-b': createBoundaryFence(b.region, b.config, secrets, fault),
  }
  const pools: ServicePool[] = []
  const inboxes = new Map<Side, InboxStore>()
  const inbox = (side: Side): InboxStore => {
    const known = inboxes.get(side)
    if (known !== undefined) return known
    const url = regions[side].region.database.operator.url.replace('homeregion_operator', 'app_inbox')
    const pool = createServicePool({
      ...{ login: { url, password: { env: 'PASSWORD' } }, secrets, name: side, applicationName: 'inbox', size: 1, callTimeoutMs: 5_000 },
    })
    pools.push(pool)
    const made = createInboxStore(pool, INBOX, IDEMPOTENCY, accountApplier)
    inboxes.set(side, made)
    return made
  }
  const clients = new Map<string, pg.Client>()
  const client = async (side: Side, role: string): Promise<pg.Client> => {
    const known = clients.get(side + role)
    if (known !== undefined) return known
    const made = await regions[side].login(role)
    clients.set(side + role, made)
    return made
  }
  return {
    ...{ store, recovery, regions },
    database: side => regions[side].db,
    fence: side => fences[side],
    admin: async side => await client(side, 'postgres'),
    forget: side => {
      for (const name of [...clients.keys()]) if (name.startsWith(side)) clients.delete(name)
    },
    register: async keys => {
      const records = await store.register(keys.map(key => ({ key, homeRegion: 'region-a' })))
      const rows = records.map(r => ({ key: r.key, homeRegion: r.homeRegion, epoch: r.epoch }))
      for (const f of [b, a]) await f.db.register(rows)
    },
    write: async (key, side, account) => {
      const writer = await client(side, 'app_writer')
      const answer = await commitDirect(writer, directWrite(key, side, await epochIn(writer, key), account))
      if (answer.ack === null) throw new Error(`refused: ${answer.sqlstate}`)
      return answer.ack.idempotencyKey
    },
    deliver: async (from, key, limit = 1_000) => {
      const to = from === 'region-a' ? 'region-b' : 'region-a'
      const known = new Set(
        (await (await client(to, 'postgres')).query<{ id: string }>('select event_id::text as id from inbox')).rows.map(r => r.id),
      )
      const { rows } = await (await client(from, 'postgres')).query<OutboxRow>(
        'select *, payload::text as value from outbox where tenant_id = $1 order by position',
        [key],
      )
      const outcomes: string[] = []
      for (const row of rows.filter(r => !known.has(r.event_id)).slice(0, limit)) {
        const event = eventOf(headersOf(envelopeOf(row)), row.value)
        if (event === null) throw new Error('no event')
        const outcome = await inbox(to)
          .apply([event], () => true)
          .catch(async (error: unknown) => {
            if (error instanceof LateEvents) return await inbox(to).quarantine([event])
            throw error
          })
        outcomes.push(...outcome)
        await (await client(from, 'postgres')).query('update outbox set published_at = clock_timestamp() where event_id = $1', [
          row.event_id,
        ])
      }
      return outcomes
    },
    force: async keys => {
      const records = await store.ownership(keys)
      const lease = await store.openRun(failoverPlan(records), HOLDER, 'region-a is dark', { seize: true })
      await store.commit(lease, { forced: await forcedChange(store, lease, records) })
      await store.commit(lease, { runState: 'DONE', keyOutcomes: keys.map(key => ({ key, outcome: 'moved' as const })) })
      await b.db.openMany(
        records.map(r => ({ key: r.key, epoch: r.epoch + 1 })),
        lease.token,
      )
      return lease.runId
    },
    parts: (over = {}) => {
      const told: string[] = []
      return {
        ...{ controlPlane: store, recovery, shared: false, leased: false, defaultHome: null, by: 'ada@alpha', told },
        region: name => regions[name as Side].db,
        others: ['region-b'],
        fences: name => [fences[name as Side]],
        ...{ fault, runbook: RUNBOOK, done: [], clock: systemClock, hooks: createHooks(process.env) },
        look: () => Promise.resolve([]),
        confirm: () => Promise.resolve(true),
        watcher: { started: () => undefined, ended: () => undefined, interrupted: () => false },
        tell: line => void told.push(line),
        ...over,
      }
    },
    stop: async () => {
      await Promise.allSettled([
        recovery.close(),
        ...pools.map(async p => await p.close()),
        fences['region-a'].close(),
        fences['region-b'].close(),
      ])
      await Promise.allSettled([a.stop(), b.stop(), control.stop()])
    },
  }
}

type OutboxRow = {
  readonly event_id: string
  readonly tenant_id: string
  readonly aggregate_type: string
  readonly aggregate_id: string
  readonly event_type: string
  readonly source_region: string
  readonly home_region: string
  readonly owner_epoch: string
  readonly aggregate_version: string
  readonly occurred_at: Date
  readonly value: string
}

function envelopeOf(row: OutboxRow) {
  return {
    ...{
      eventId: row.event_id,
      key: row.tenant_id,
      aggregateType: row.aggregate_type,
      aggregateId: row.aggregate_id,
      eventType: row.event_type,
    },
    ...{ sourceRegion: row.source_region, homeRegion: row.home_region, ownerEpoch: Number(row.owner_epoch) },
    ...{ aggregateVersion: Number(row.aggregate_version), occurredAt: row.occurred_at.toISOString() },
  }
}
