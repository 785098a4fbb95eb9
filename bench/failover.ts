/**
 * A forced failover beside a planned move, in one run: from the acknowledgement to the first write at the target, less what was left of the source's
 * lease, against the activation of a planned move; the estimate of many keys; and the one commit of many.
 *   npm run bench:failover -- --moves 5 --keys 100000 --commit 10000
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { parse, stringify } from 'yaml'
import { KEYS } from '../sandbox/layout.ts'
import { killProcess } from '../sandbox/processes.ts'
import { loadConfig } from '../src/adapters/files/config-file.ts'
import { loadRunbook } from '../src/adapters/files/runbook-file.ts'
import { compose } from '../src/cli/compose.ts'
import type { CliContext, World } from '../src/cli/context.ts'
import { prepare } from '../src/cli/failover/prepare.ts'
import { isHomeregionError } from '../src/domain/errors.ts'
import { EXILE_STEPS } from '../src/domain/failover.ts'
import { computePlan } from '../src/domain/planning.ts'
import type { RunEvent } from '../src/engine/context.ts'
import { startForced } from '../src/engine/forced-run.ts'
import { startRun } from '../src/engine/run.ts'
import { startRig } from '../test/rig/rig.ts'

const { values: flags } = parseArgs({
  options: {
    moves: { type: 'string', default: '5' },
    keys: { type: 'string', default: '100000' },
    commit: { type: 'string', default: '10000' },
  },
})
const [moves, many, atOnce] = [Number(flags.moves), Number(flags.keys), Number(flags.commit)]
const [LEASE_MS, MARGIN_MS] = [3000, 1000]
const ESTIMATE_AIM_MS = 3000
const COMMIT_AIM_MS = 2000
const AGENT = 'bench'
const ACKNOWLEDGEMENT = { kind: 'bound', boundMs: 600_000 } as const

const rig = await startRig()
try {
  // Without a lease first: the planned moves need no agent then.
  const plain = worldOf(false)
  const planned = await plannedActivations(plain.world)
  await plain.world.close()
  const { world, context } = worldOf(true)
  await estimateOfMany(world, context)
  const over = await forcedMoves(world, context)
  const aim = 2 * median(planned)
  say(
    median(over) <= aim,
    `acknowledgement to first write at the target, less what was left of the lease: p50 ${median(over).toFixed(0)} ms of ${over.length}; aim ${aim.toFixed(0)} ms, twice the activation of a planned move (p50 ${median(planned).toFixed(0)} ms)`,
  )
  await commitOfMany(world, context)
  await world.close()
} finally {
  await rig.stop()
}

function worldOf(leased: boolean): { world: World; context: CliContext } {
  const written = parse(readFileSync(rig.config, 'utf8')) as {
    policy: object
    agent?: object
    regions: Record<string, { lease?: unknown }>
  }
  written.policy = { ...written.policy, darkAfter: '1s', maxKeys: many + 100, loss: [{ keys: '*', rpo: 'any' }] }
  written.agent = { observeEvery: '500ms' }
  if (leased && written.regions['region-a'] !== undefined)
    written.regions['region-a'].lease = { duration: `${LEASE_MS}ms`, margin: `${MARGIN_MS}ms`, onAgentOutage: 'stop' }
  const file = join(rig.dir, leased ? 'bench-leased.yaml' : 'bench-plain.yaml')
  writeFileSync(file, stringify(written, { aliasDuplicateObjects: false }), { mode: 0o600 })
  const env = { HOMEREGION_STATE_DIR: join(rig.dir, 'state') }
  const loaded = loadConfig({ file, env, cwd: rig.dir, flags: {} })
  const world = compose(loaded.config, env)
  const context = { env, cwd: rig.dir, err: { isTerminal: false }, settings: () => Promise.resolve(loaded) } as unknown as CliContext
  return { world, context }
}

function quiet(report: (event: RunEvent) => void) {
  return {
    ...{ report, interrupted: () => false, confirm: () => Promise.resolve(true), atDeadline: () => Promise.resolve('wait' as const) },
    watches: false,
  }
}

/** From the end of the catch-up to the first write the target admits. */
async function plannedActivations(world: World): Promise<readonly number[]> {
  const { config } = loadConfig({ file: rig.config, env: {}, cwd: rig.dir, flags: {} })
  const pinned = loadRunbook('drill', rig.dir)
  const taken: number[] = []
  for (const key of KEYS.slice(0, moves)) {
    const records = await world.controlPlane.ownership([key])
    const plan = computePlan({ pinned, keys: [key], target: 'region-b', records, config, atHome: new Map() })
    let [from, to] = [0, 0]
    const operator = quiet(event => {
      if (event.type !== 'step-passed') return
      if (event.step.id === 'catch-up') from = performance.now()
      if (event.step.action?.kind === 'activate') to = performance.now()
    })
    const end = await startRun(world.engine(operator), plan, { reason: null, observeMs: 0 })
    if (end.exit !== 'done') throw new Error(`planned move of ${key}: ${JSON.stringify(end.keys.map(k => k.end.fact))}`)
    taken.push(to - from)
  }
  return taken
}

async function estimateOfMany(world: World, context: CliContext): Promise<void> {
  const keys = Array.from({ length: many }, (_, i) => `many-${i}`)
  for (let i = 0; i < keys.length; i += 10_000)
    await world.controlPlane.register(keys.slice(i, i + 10_000).map(key => ({ key, homeRegion: 'region-a' })))
  const target = await rig.pg('region-b')
  await target.query(
    `insert into public.inbox (event_id, tenant_id, owner_epoch, event_type) select gen_random_uuid(), 'many-' || i, 1, 'x' from generate_series(0, $1 - 1) i`,
    [many],
  )
  await target.query('analyze public.inbox')
  await killSource()
  await look(world)
  await dark(async () => await prepare(context, world, KEYS.slice(-1), { from: 'region-a', to: 'region-b', fence: 'attest' }))
  const began = performance.now()
  const { estimate } = await prepare(context, world, [], { from: 'region-a', to: 'region-b', fence: 'attest' })
  const tookMs = performance.now() - began
  say(tookMs <= ESTIMATE_AIM_MS, `estimate and plan of ${estimate.keys.length} keys: ${tookMs.toFixed(0)} ms, aim ${ESTIMATE_AIM_MS} ms`)
}

/** The last thing here: its source stays in exile. */
async function commitOfMany(world: World, context: CliContext): Promise<void> {
  const keys = Array.from({ length: Math.min(many, atOnce) }, (_, i) => `many-${i}`)
  const { settings, plan, estimate, fence } = await leasedFailover(world, context, keys)
  // So many keys want an approval, and the one who begins the run is the only login here.
  const report = (event: RunEvent) => {
    if (event.type === 'run-opened') void world.controlPlane.approve(event.runId, 'approved', 'bench', true)
  }
  const operator = { ...quiet(report), watches: true }
  const engine = world.engine(operator)
  let tookMs = Number.NaN
  const commit: typeof engine.controlPlane.commit = async (lease, change) => {
    const began = performance.now()
    const records = await engine.controlPlane.commit(lease, change)
    if (change.forced !== undefined) tookMs = performance.now() - began
    return records
  }
  const began = performance.now()
  const end = await startForced(
    { engine: { ...engine, controlPlane: { ...engine.controlPlane, commit } }, operator, settings },
    { plan, estimate, fence, acknowledgement: ACKNOWLEDGEMENT, attestation: null, reason: 'bench', observeMs: 0 },
  )
  if (end.exit !== 'done') throw new Error(`forced failover of ${keys.length} keys: ${end.fact}`)
  const all = (performance.now() - began).toFixed(0)
  say(
    tookMs <= COMMIT_AIM_MS,
    `the one commit of a forced failover of ${keys.length} keys: ${tookMs.toFixed(0)} ms, aim ${COMMIT_AIM_MS} ms; opened, told and closed after ${all} ms`,
  )
}

/** With a lease that was granted a moment ago, and a look that is as young. */
async function leasedFailover(world: World, context: CliContext, keys: readonly string[]) {
  const { controlPlane } = world
  await controlPlane.leadAgents(AGENT, 60_000)
  await controlPlane.grantLease('region-a', AGENT, LEASE_MS, MARGIN_MS)
  await controlPlane.noteLeaseStops('region-a', AGENT, true)
  await look(world)
  const prepared = await dark(async () => await prepare(context, world, keys, { from: 'region-a', to: 'region-b', fence: 'lease' }))
  if (prepared.plan === null) throw new Error('the policy lets the keys move')
  return { ...prepared, plan: prepared.plan }
}

async function forcedMoves(world: World, context: CliContext): Promise<readonly number[]> {
  const { controlPlane } = world
  const writer = await rig.pg('region-b', 'app_writer')
  const over: number[] = []
  for (const key of KEYS.slice(moves, 2 * moves)) {
    const { settings, plan, estimate, fence } = await leasedFailover(world, context, [key])
    const operator = quiet(() => undefined)
    const leftMs = Math.max(0, (await controlPlane.leaseStates()).find(l => l.region === 'region-a')?.leftMs ?? 0)
    const began = performance.now()
    const run = startForced(
      { engine: world.engine(operator), operator, settings },
      { plan, estimate, fence, acknowledgement: ACKNOWLEDGEMENT, attestation: null, reason: 'bench', observeMs: 0 },
    )
    let [admittedMs, ended] = [0, false]
    const done = run.finally(() => {
      ended = true
    })
    while (admittedMs === 0 && !ended) {
      if (await admitted(writer, key)) admittedMs = performance.now()
      else await new Promise(resolve => setTimeout(resolve, 5))
    }
    const end = await done
    if (end.exit !== 'done' || admittedMs === 0) throw new Error(`forced move of ${key}: ${end.fact}`)
    over.push(admittedMs - began - leftMs)
    for (const step of EXILE_STEPS) await controlPlane.noteExile('region-a', step)
    await controlPlane.endExile('region-a', 'bench')
    await controlPlane.releaseLease('region-a', null)
  }
  return over
}

async function admitted(writer: Awaited<ReturnType<typeof rig.pg>>, key: string): Promise<boolean> {
  await writer.query('begin')
  try {
    await writer.query(
      `insert into public.invoice (tenant_id, invoice_id, account_id, amount_cents) values ($1, gen_random_uuid()::text, 'bench', 1)`,
      [key],
    )
    return true
  } catch (error) {
    if (error instanceof Error && 'code' in error && String(error.code).startsWith('HR')) return false
    throw error
  } finally {
    await writer.query('rollback')
  }
}

async function killSource(): Promise<void> {
  const names = ['postgres-region-a', 'kafka-region-a', 'service-region-a']
  await Promise.all(rig.sandbox.processes.list().flatMap(p => (names.includes(p.name) ? [killProcess(p)] : [])))
}

async function look(world: World): Promise<void> {
  await world.controlPlane.recordObservation({
    ...{ observer: AGENT, takenAgoMs: 0, contacts: [] },
    observations: [
      {
        ...{ region: 'region-a', unpublished: 0, oldestUnpublishedMs: null, highestPerSecond: 10 },
        notApplied: { 'region-b': { events: 0, oldestMs: null } },
      },
    ],
  })
}

/** A lease that was granted a moment ago is a contact; it grows older by itself. */
async function dark<T>(work: () => Promise<T>): Promise<T> {
  for (const until = performance.now() + 30_000; ; ) {
    try {
      return await work()
    } catch (error) {
      if (!isHomeregionError(error, 'source-answers') || performance.now() > until) throw error
      await new Promise(resolve => setTimeout(resolve, 50))
    }
  }
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
}

function say(reached: boolean, text: string): void {
  process.stdout.write(`${reached ? 'ok  ' : 'MISS'} ${text}\n`)
}
