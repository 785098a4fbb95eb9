import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { newEntry } from '../../src/adapters/files/fence-entry.ts'
import { createHooks } from '../../src/adapters/hooks/command-hooks.ts'
import { createBoundaryFence } from '../../src/adapters/postgres-region/fences/boundary.ts'
import { installBoundary } from '../../src/adapters/postgres-region/install.ts'
import { createRegionDatabase } from '../../src/adapters/postgres-region/region-database.ts'
import { createRegionPulse } from '../../src/adapters/postgres-region/region-pulse.ts'
import { systemClock } from '../../src/adapters/system/clock.ts'
import { createExileWatch } from '../../src/agent/exile-watch.ts'
import { createFenceWatch } from '../../src/agent/fence-watch.ts'
import { createLeaseKeeper, type LeasedRegion } from '../../src/agent/lease-keeper.ts'
import { createMetrics } from '../../src/agent/metrics.ts'
import type { AgentParts } from '../../src/agent/parts.ts'
import type { Config } from '../../src/domain/config.ts'
import type { Exile } from '../../src/domain/failover.ts'
import type { Fence } from '../../src/domain/fence.ts'
import type { ControlPlane, RegionDatabase } from '../../src/domain/ports.ts'
import type { RegionPulse } from '../../src/domain/pulse.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { adminSecrets, type RegionFixture, secrets, startRegion } from './boundary-fixture.ts'
import { HOLDER } from './control-plane-fixture.ts'
import { type ForcedFixture, failoverPlan, startForcedFixture } from './forced-fixture.ts'
import { CAUSE, codeOf, INSERT } from './region-boundary-fixture.ts'

const DURATION_MS = 1500

let control: ForcedFixture
let f: RegionFixture
let store: ControlPlane
let region: LeasedRegion
let db: RegionDatabase
let pulse: RegionPulse
let fence: Fence
let w: pg.Client
let parts: AgentParts
let log: string[] = []
let exiles: readonly Exile[] = []

beforeAll(async () => {
  control = await startForcedFixture()
  f = await startRegion({ install: false })
  store = control.store()
  region = { ...f.region, lease: { durationMs: DURATION_MS, marginMs: 200, onAgentOutage: 'stop' } }
  const config: Config = { ...f.config, regions: [region] }
  await installBoundary({ config, region, secrets: adminSecrets(f), dryRun: false })
  db = createRegionDatabase(region, config, secrets)
  pulse = createRegionPulse(region, config, secrets, 2000)
  fence = createBoundaryFence(region, config, secrets, () => Promise.resolve())
  w = await f.login('app_writer')
  await db.register([{ key: 'k', homeRegion: region.name, epoch: 1 }])
  parts = {
    config,
    leases: store,
    controlPlane: {
      recordObservation: async report => await store.recordObservation(report),
      fencesTold: async () => await store.fencesTold(),
      logFence: async entries => await store.logFence(entries),
      exiles: () => Promise.resolve(exiles),
    },
    compareOwnership: () => Promise.resolve({ contradicted: null, silent: [] }),
    pulse: () => pulse,
    stream: () => {
      throw new Error('no Kafka here')
    },
    fences: () => [fence],
    newEntry: newEntry('here'),
    hooks: createHooks({}),
    automatic: null,
    clock: systemClock,
    fault: () => Promise.resolve(),
    log: (event, fields) => void log.push(`${event} ${JSON.stringify(fields ?? {})}`),
    metrics: createMetrics(),
    newId: randomUUID,
    agentId: 'agent one',
    vantage: 'agent here',
  }
})
afterAll(async () => {
  await Promise.allSettled([db?.close(), pulse?.close(), fence?.close()])
  await f?.stop()
  await control?.stop()
})

const write = async () => await codeOf(w.query(INSERT, ['k']))
const toldOf = async () => (await store.fencesTold()).find(t => t.fence === fence.name)?.event

test('only the leader grants; a withheld lease runs out and is never granted again until it is released', async () => {
  const keeper = createLeaseKeeper(region, parts)
  expect(await keeper.renew()).toMatchObject({ outcome: 'superseded' })
  expect(await store.leadAgents(parts.agentId, 60_000)).toBe(true)
  expect(await keeper.renew()).toMatchObject({ outcome: 'granted', generation: 1 })
  expect(await write()).toBeNull()
  const other = createLeaseKeeper(region, { ...parts, agentId: 'agent two' })
  expect(await store.leadAgents('agent two', 60_000)).toBe(false)
  expect(await other.renew()).toMatchObject({ outcome: 'superseded' })

  const [record] = await store.register([{ key: 'k', homeRegion: region.name }])
  if (record === undefined) throw new Error('not registered')
  const run = await store.openRun(failoverPlan([record]), HOLDER, null)
  await store.withholdLease(region.name, run)
  expect(await keeper.renew()).toMatchObject({ outcome: 'withheld' })
  expect(keeper.withheld()).toBe(true)
  await expect.poll(write, { timeout: DURATION_MS + 3000, interval: 20 }).toBe('HR004')
  // Over by the region's own clock before the control plane believes it.
  const [state] = await store.leaseStates()
  expect(state?.leftMs).toBeGreaterThan(0)
  for (let i = 0; i < 5; i += 1) expect(await keeper.renew()).toMatchObject({ outcome: 'withheld' })
  expect(await write()).toBe('HR004')
  expect(log.filter(l => l.startsWith('lease-withheld'))).toHaveLength(1)
  expect(log.filter(l => l.startsWith('alarm'))).toEqual([])
  await store.releaseLease(region.name, run)
  expect(await keeper.renew()).toMatchObject({ outcome: 'granted', generation: 2 })
  expect(await write()).toBeNull()
})

test('a region that cannot be reached is granted nothing, so that its lease runs out; one alarm at risk and one at the end', async () => {
  log = []
  let reachable = true
  const keeper = createLeaseKeeper(region, {
    ...parts,
    pulse: () => ({ ...pulse, readClock: async () => (reachable ? await pulse.readClock() : await Promise.reject(new Error('dark'))) }),
  })
  await keeper.renew()
  reachable = false
  const [before] = await store.leaseStates()
  await expect
    .poll(
      async () => {
        await keeper.renew()
        return keeper.leftMs() ?? 1
      },
      { timeout: DURATION_MS + 3000, interval: 50 },
    )
    .toBeLessThan(0)
  await keeper.renew()
  const [after] = await store.leaseStates()
  expect(after?.generation).toBe(before?.generation)
  expect(log.filter(l => l.startsWith('alarm')).map(l => /"kind":"([^"]+)"/.exec(l)?.[1])).toEqual(['lease-at-risk', 'lease-over'])
  expect(keeper.nextMs()).toBeLessThan(DURATION_MS / 3)
})

test('a control plane that knows fewer grants than the region has lost commits: it grants once no other region contradicts it', async () => {
  log = []
  let contradicted: string | null = null
  let silent = ['region-b']
  let asked = 0
  const keeper = createLeaseKeeper(region, {
    ...parts,
    compareOwnership: about => {
      asked += about === region.name ? 1 : 0
      return Promise.resolve({ contradicted, silent })
    },
  })
  const alarms = () => log.filter(l => l.startsWith('alarm')).map(l => JSON.parse(l.slice('alarm '.length)) as Record<string, unknown>)
  expect(await keeper.renew()).toMatchObject({ outcome: 'granted' })
  expect(asked).toBe(0)
  const { generation } = await pulse.readClock()
  // As a backup that is older than the region's first lease.
  await (await control.raw('admin')).query('delete from homeregion_control.region_lease where region = $1', [region.name])
  for (let i = 0; i < 3; i += 1) expect(await keeper.renew()).toEqual({ outcome: 'behind', reason: 'region-b does not answer' })
  expect(alarms()).toMatchObject([{ kind: 'control-plane-behind', region: region.name }])
  expect(alarms()[0]?.fact).toMatch(/knows grant \d+ of its lease.*is not granted until.*region-b does not answer/)
  contradicted = 'region-b has k at home in region-b under epoch 2, the control plane in region-a under epoch 1'
  expect(await keeper.renew()).toEqual({ outcome: 'behind', reason: contradicted })
  expect(alarms()).toHaveLength(2)
  expect(log.filter(l => l.startsWith('lease-behind'))).toHaveLength(1)
  expect((await pulse.readClock()).generation).toBe(generation)
  expect(await store.leaseStates()).toEqual([])
  await expect.poll(write, { timeout: DURATION_MS + 3000, interval: 20 }).toBe('HR004')
  contradicted = null
  silent = []
  expect(await keeper.renew()).toEqual({ outcome: 'granted', generation: generation + 1 })
  expect(await keeper.renew()).toEqual({ outcome: 'granted', generation: generation + 2 })
  expect(asked).toBe(5)
  expect(await write()).toBeNull()
  expect(alarms()).toHaveLength(2)

  // A server that took over knows every grant, and perhaps not what came after the last: who contradicts it counts, who is dark does not.
  const tookOver = async () =>
    await (await control.raw('admin')).query(
      `update homeregion_control.region_lease set life = 'of its former primary' where region = $1`,
      [region.name],
    )
  await tookOver()
  silent = ['region-c']
  contradicted = 'region-b has k at home in region-b under epoch 2, the control plane in region-a under epoch 1'
  expect(await keeper.renew()).toEqual({ outcome: 'behind', reason: contradicted })
  contradicted = null
  expect(await keeper.renew()).toMatchObject({ outcome: 'granted' })
  expect(asked).toBe(7)
  expect(await keeper.renew()).toMatchObject({ outcome: 'granted' })
  expect(asked).toBe(7)
})

test('a fence that was lifted behind the back of its record is told once, in the log and by an alarm', async () => {
  log = []
  const watch = createFenceWatch(parts)
  const told = async (event: 'applied' | 'lift-started' | 'lifted') =>
    await store.logFence([
      parts.newEntry({
        region: region.name,
        fence: fence.name,
        kind: fence.kind,
        event,
        by: 'op',
        runId: null,
        reason: 'test',
        detail: null,
      }),
    ])
  await fence.apply(CAUSE)
  await told('applied')
  await watch.look()
  expect(parts.metrics.text()).toContain('homeregion_fence_holds{region="region-a",fence="boundary"} 1')
  await liftStanding(fence, CAUSE)
  await watch.look()
  await watch.look()
  expect(await toldOf()).toBe('found-lifted')
  expect(log.filter(l => l.startsWith('alarm'))).toHaveLength(1)
  expect(parts.metrics.text()).toContain('homeregion_fence_holds{region="region-a",fence="boundary"} 0')
  // Lifted in order: nothing to say.
  await told('lift-started')
  await told('lifted')
  await watch.look()
  expect(log.filter(l => l.startsWith('alarm'))).toHaveLength(1)
  expect(parts.metrics.text()).not.toContain('homeregion_fence_holds{')
})

test('a region in exile that answers again is closed at once; one that is back is left alone', async () => {
  log = []
  const watch = createExileWatch(parts)
  const keeper = createLeaseKeeper(region, parts)
  await keeper.renew()
  expect(await write()).toBeNull()
  await watch.look(region.name)
  expect(await write()).toBeNull()
  const open = { id: randomUUID(), region: region.name, runIds: ['r1', 'r2'], since: '2026-01-01T00:00:00Z', done: [], undecided: 0 }
  exiles = [{ ...open, endedAt: null, endedBy: null, endReason: null }]
  await watch.look(region.name)
  expect(await write()).toBe('HR009')
  expect(await fence.status()).toMatchObject({ state: 'applied', cause: { by: 'agent one', runId: 'r2' } })
  await watch.look(region.name)
  expect(log.filter(l => l.startsWith('alarm'))).toHaveLength(1)
  exiles = [{ ...open, endedAt: '2026-01-02T00:00:00Z', endedBy: 'op', endReason: 'level' }]
  await liftStanding(fence, CAUSE)
  await watch.look(region.name)
  expect(await fence.status()).toMatchObject({ state: 'lifted' })
})

test('a fence that an agent puts up while the region is let in again comes down, whether the exile ends before it or after; others’ stay', async () => {
  const exile = { id: randomUUID(), region: region.name, runIds: ['r1'], since: '2026-02-01T00:00:00Z', done: [], undecided: 0 }
  const [open, ended] = [
    { ...exile, endedAt: null, endedBy: null, endReason: null },
    { ...exile, endedAt: '2026-02-02T00:00:00Z', endedBy: 'op', endReason: 'level' },
  ]
  // It ends between the agent's look at the record and its fence.
  const late = createExileWatch({
    ...parts,
    fences: () => [
      {
        ...fence,
        apply: async cause => {
          const lines = await fence.apply(cause)
          exiles = [ended]
          return lines
        },
      },
    ],
  })
  exiles = [open]
  log = []
  await late.look(region.name)
  expect(await fence.status()).toMatchObject({ state: 'lifted' })
  expect(log.filter(l => l.startsWith('exile-fence-taken-back'))).toHaveLength(1)
  expect(log.filter(l => l.startsWith('alarm'))).toEqual([])
  // It ends a moment after, and whoever ended it had lifted before.
  const watch = createExileWatch(parts)
  exiles = [open]
  await watch.look(region.name)
  expect(await fence.status()).toMatchObject({ state: 'applied' })
  exiles = [ended]
  await createExileWatch({ ...parts, agentId: 'agent two' }).look(region.name)
  expect(await fence.status()).toMatchObject({ state: 'lifted' })
  await fence.apply(CAUSE)
  await createExileWatch(parts).look(region.name)
  expect(await fence.status()).toMatchObject({ state: 'applied' })
  await liftStanding(fence, CAUSE)
  expect(await write()).toBeNull()
})
