import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type pg from 'pg'
import { afterAll, beforeAll, expect } from 'vitest'
import type { SandboxRegion } from '../../sandbox/layout.ts'
import { type Load, type LoadOptions, startLoad } from '../../sandbox/load.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { loadConfig } from '../../src/adapters/files/config-file.ts'
import { createRecovery } from '../../src/adapters/postgres-region/recovery/recovery.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { CliRun } from '../rig/cli.ts'
import { type LinkedConfig, type LinkedRegions, startLinkedRegions } from '../rig/linked-regions.ts'

export const APPROVER = 'bob_approves'
/** Longer than a hundred forced runs; the scene ends it. */
const AGENT_MS = 4 * 3_600_000
const PASSWORD = 'approver-of-a-throwaway-cluster'

/** One committed write of a region, as its outbox holds it. */
export type Commit = {
  readonly eventId: string
  readonly key: string
  readonly epoch: number
  /** Null for a barrier or a heartbeat. */
  readonly idempotencyKey: string | null
  readonly occurredAtMs: number
  readonly published: boolean
}

/** Two linked regions, an agent that stands in region-b, and the recorder's looks at both databases. */
export interface LinkedScene {
  readonly regions: LinkedRegions
  agent(): CliRun
  /** Writers of one region only, as its own users are. */
  load(region: SandboxRegion, options: Pick<LoadOptions, 'tenants'> & Partial<LoadOptions>): Load
  register(keys: readonly string[], home?: SandboxRegion): Promise<void>
  /** What a region has committed itself for these keys, read past every link. */
  commits(region: SandboxRegion, keys: readonly string[]): Promise<readonly Commit[]>
  /** Events that a region has applied from elsewhere; those in quarantine are not. */
  applied(region: SandboxRegion): Promise<ReadonlySet<string>>
  quarantined(region: SandboxRegion): Promise<ReadonlySet<string>>
  query<T extends pg.QueryResultRow>(
    where: SandboxRegion | 'control-plane',
    sql: string,
    parameters?: readonly unknown[],
  ): Promise<readonly T[]>
  /** Ids of the events that `reconcile` lists for these keys under the epoch that was ended, asked of the product itself. */
  listed(keys: readonly string[], epoch: number): Promise<ReadonlySet<string>>
  /** Waits for a condition; the text says what was waited for. */
  until(what: string, timeoutMs: number, condition: () => boolean | Promise<boolean>): Promise<void>
}

export const POLICY = {
  evidenceMaxAge: '8s',
  runLease: '8s',
  callTimeout: '4s',
  darkAfter: '2s',
  loss: [
    { keys: 'ledger-*', rpo: 'never' },
    { keys: '*', rpo: 'any' },
  ],
  approvals: { approvers: [APPROVER], needed: 1, aboveKeys: 100 },
}

export function useLinkedScene(change: (config: LinkedConfig, dir: string) => void): LinkedScene {
  let regions: LinkedRegions | undefined
  const clients = new Map<string, Promise<pg.Client>>()
  const loads: Load[] = []
  const agents: CliRun[] = []
  const there = (): LinkedRegions => {
    if (regions === undefined) throw new Error('the scene runs inside tests and hooks only')
    return regions
  }

  beforeAll(async () => {
    regions = await startLinkedRegions()
    const configured = (config: LinkedConfig, dir: string) => {
      config.policy = POLICY
      Object.assign(config, { agent: { observeEvery: '500ms' } })
      change(config, dir)
    }
    regions.configure(configured)
    const secret = join(regions.dir, 'approver')
    writeFileSync(secret, PASSWORD, { mode: 0o600 })
    const control = await regions.rig.pg('control-plane')
    await control.query(`create role ${APPROVER} login password '${PASSWORD}' in role homeregion_operator`)
    await control.end()
    regions.configure((config, dir) => {
      configured(config, dir)
      const url = new URL(config.controlPlane.url)
      url.username = APPROVER
      config.controlPlane = { ...config.controlPlane, url: url.toString(), password: { file: secret } }
    }, APPROVER)
    const init = await regions.cli(['init', '--yes'])
    expect(init.code, init.stderr).toBe(0)
  }, 300_000)
  afterAll(async () => {
    await Promise.all(loads.map(async load => await load.stop(0)))
    for (const agent of agents) agent.child.kill('SIGKILL')
    await Promise.all(agents.map(async agent => await agent.done))
    await regions?.stop()
  }, 120_000)

  const client = async (where: SandboxRegion | 'control-plane'): Promise<pg.Client> => {
    const open = clients.get(where) ?? there().rig.pg(where)
    clients.set(where, open)
    return await open
  }
  const query: LinkedScene['query'] = async (where, sql, parameters = []) => {
    const asked = async () => (await (await client(where)).query<pg.QueryResultRow>(sql, [...parameters])).rows as never
    return await asked().catch(async (error: unknown) => {
      if (error instanceof Error && 'severity' in error) throw error
      // A session that a killed server took along; everything asked here can be asked again.
      clients.delete(where)
      return await asked()
    })
  }

  return {
    get regions() {
      return there()
    },
    agent: () => {
      const agent = there().startCli(['agent', '--listen', '127.0.0.1:0'], { timeoutMs: AGENT_MS })
      agents.push(agent)
      return agent
    },
    load: (region, options) => {
      const load = startLoad({ services: [there().services[region]], ...options })
      loads.push(load)
      return load
    },
    register: async (keys, home = 'region-a') => {
      const added = await there().cli(['key', 'add', ...keys, '--home', home])
      expect(added.code, added.stderr).toBe(0)
    },
    commits: async (region, keys) =>
      await query<Commit>(
        region,
        `select event_id::text as "eventId", tenant_id as key, owner_epoch::int as epoch, published_at is not null as published,
  extract(epoch from occurred_at)::float8 * 1000 as "occurredAtMs", payload -> 'idempotency' ->> 'id' as "idempotencyKey"
from public.outbox where tenant_id = any ($1) and event_type <> 'homeregion.barrier' order by occurred_at`,
        [keys],
      ),
    applied: async region =>
      new Set(
        (
          await query<{ id: string }>(
            region,
            `select event_id::text as id from public.inbox i where not exists (select from homeregion.quarantine q where q.event_id = i.event_id::text)`,
          )
        ).map(r => r.id),
      ),
    quarantined: async region =>
      new Set((await query<{ id: string }>(region, 'select event_id as id from homeregion.quarantine')).map(r => r.id)),
    query,
    listed: async (keys, epoch) => {
      const file = join(there().dir, 'homeregion.yaml')
      const { config } = loadConfig({ env: {}, cwd: there().dir, flags: {}, file })
      const recovery = createRecovery(config, createSecrets({}))
      try {
        const found = await recovery.findLost(
          'region-a',
          'region-b',
          keys.map(key => ({ key, epoch })),
        )
        return new Set(found.flatMap(f => (f.id.startsWith('event-') ? [f.id.slice('event-'.length)] : [])))
      } finally {
        await recovery.close()
      }
    },
    until: async (what, timeoutMs, condition) => {
      if (!(await waitUntil(condition, timeoutMs))) throw new Error(`${what}: not within ${timeoutMs} ms`)
    },
  }
}
