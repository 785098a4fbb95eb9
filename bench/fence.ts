/**
 * What it costs to fence and to prove it.
 *   npm run bench:fence                       one key: the fence and its proof beside the same statements sent one after the other
 *   npm run bench:fence -- --delay 5          the same with 5 ms each way between this process and the database
 * and a region with many keys: its boundary closed and proved beside its slowest other fence.
 */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import pg from 'pg'
import { createBoundaryFence } from '../src/adapters/postgres-region/fences/boundary.ts'
import { createCredentialsFence } from '../src/adapters/postgres-region/fences/credentials.ts'
import { createReadOnlyFence } from '../src/adapters/postgres-region/fences/read-only.ts'
import { createRegionDatabase } from '../src/adapters/postgres-region/region-database.ts'
import { createSink, SINK_TIMEOUT_MS } from '../src/adapters/sinks/sink.ts'
import { systemClock } from '../src/adapters/system/clock.ts'
import { createFaultPoint } from '../src/adapters/system/fault-point.ts'
import { createSecrets } from '../src/adapters/system/secrets.ts'
import type { RegionConfig, SecretSink } from '../src/domain/config.ts'
import type { Fence } from '../src/domain/fence.ts'
import { fenceHolds } from '../src/engine/checks/fence-holds.ts'
import { type RegionFixture, secrets, startRegion } from '../test/integration/boundary-fixture.ts'
import { liftStanding } from '../test/rig/lift-standing.ts'
import { createFakeEngine } from '../test/unit/engine-fixture.ts'
import { type DelayingProxy, startDelayingProxy } from './delaying-proxy.ts'

const { values: flags } = parseArgs({
  options: {
    pairs: { type: 'string', default: '40' },
    /** Milliseconds each way. */
    delay: { type: 'string', default: '0' },
    /** Keys of the region that is fenced as a whole. */
    keys: { type: 'string', default: '10000' },
    rounds: { type: 'string', default: '3' },
  },
})
const delayMs = Number(flags.delay)
const RATIO_AIM = 3
const REGION_AIM_MS = 2000
// First calls compile the boundary's functions and plan their statements, on both sides.
const WARM_UP = 5

type Sent = { readonly role: string; readonly text: string; readonly values: readonly unknown[] }

const fixture = await startRegion()
let proxy: DelayingProxy | null = null
try {
  proxy = await startDelayingProxy({ name: 'region-a', target: { host: '127.0.0.1', port: fixture.server.port }, delayMs })
  await oneKey(fixture, proxy.port)
  await wholeRegion(fixture)
} finally {
  await proxy?.close()
  await fixture.stop()
}

/** In pairs, so that a machine that is busy is busy for both; the statements are those that the product sent, word for word. */
async function oneKey(on: RegionFixture, port: number): Promise<void> {
  const region = through(on.region, port)
  const db = createRegionDatabase(region, on.config, secrets)
  const engine = createFakeEngine([db], {}, systemClock)
  const bare = new Map<string, pg.Client>()
  try {
    await db.warm()
    for (const login of [region.database.operator, ...region.database.writers]) bare.set(roleOf(login.url), await session(login.url))
    const [ours, theirs]: [number[], number[]] = [[], []]
    let statements = 0
    for (let i = 0; i < Number(flags.pairs) + WARM_UP; i += 1) {
      const [key, other] = [`one-${i}`, `bare-${i}`]
      await on.db.register([key, other].map(k => ({ key: k, homeRegion: region.name, epoch: 1 })))
      for (const k of [key, other]) await on.db.drain(k, 1, 1)
      const barrier = randomUUID()
      const { sent, tookMs } = await recorded(async () => {
        await db.fence(key, 1, 1, barrier)
        const move = { key, source: region.name, target: 'region-b', epoch: 1, seq: 1 }
        const subject = {
          moves: [move],
          move,
          barrierEventId: barrier,
          startedMonotonicMs: 0,
          standing: [],
          memory: new Map<string, unknown>(),
        }
        const seen = await fenceHolds(engine, subject, { check: 'fence-holds', parameters: {} })
        if (seen.verdict !== 'pass') throw new Error(`the fence was not proved: ${seen.observed}`)
      })
      const elsewhere = new Map<unknown, unknown>([
        [key, other],
        [barrier, randomUUID()],
      ])
      const started = performance.now()
      for (const { role, text, values } of sent)
        await bare
          .get(role)
          ?.query(
            text,
            values.map(v => elsewhere.get(v) ?? v),
          )
          .catch(refused)
      const bareMs = performance.now() - started
      statements = sent.length
      if (i < WARM_UP) continue
      ours.push(tookMs)
      theirs.push(bareMs)
    }
    const ratios = ours.map((ms, i) => ms / (theirs[i] ?? Number.NaN))
    process.stdout.write(
      `one key, ${delayMs} ms each way, ${ratios.length} pairs: fence and proof p50 ${p(ours, 50).toFixed(1)} ms, p99 ${p(ours, 99).toFixed(1)} ms; ` +
        `the same ${statements} statements one after the other p50 ${p(theirs, 50).toFixed(1)} ms\n`,
    )
    verdict(`ratio p50 (min ${p(ratios, 0).toFixed(2)}, max ${p(ratios, 100).toFixed(2)})`, p(ratios, 50), RATIO_AIM, '')
  } finally {
    await Promise.all([...bare.values()].map(async c => await c.end()))
    await db.close()
  }
}

async function wholeRegion(on: RegionFixture): Promise<void> {
  const keys = Array.from({ length: Number(flags.keys) }, (_, i) => ({ key: `many-${i}`, homeRegion: on.region.name, epoch: 1 }))
  for (let i = 0; i < keys.length; i += 1000) await on.db.register(keys.slice(i, i + 1000))
  const fault = createFaultPoint(undefined)
  const admin = decodeURIComponent(new URL(on.server.adminUrl).password)
  const folder = mkdtempSync(join(tmpdir(), 'homeregion-bench-'))
  // Where the service reads its secret: the one that the credentials fence writes there is the one after it.
  const file = join(folder, 'secret')
  writeFileSync(file, await secrets.read(), { mode: 0o600 })
  const both = createSecrets({ ADMIN: admin, PASSWORD: await secrets.read() })
  const writers = on.region.database.writers.map(w => ({ ...w, password: { file } }))
  const region = { ...on.region, database: { ...on.region.database, writers } }
  const config = { ...on.config, regions: [region] }
  const credentials = { name: 'credentials', kind: 'credentials', roles: [{ role: 'app_writer', sink: { file } }] } as const
  const sinkOf = (sink: SecretSink) => createSink(sink, { secrets: both, env: {}, timeoutMs: SINK_TIMEOUT_MS })
  const readOnly = { name: 'read-only', kind: 'read-only' } as const
  const fences: readonly Fence[] = [
    createReadOnlyFence(region, readOnly, config, both, fault),
    createCredentialsFence(region, credentials, config, both, sinkOf, fault),
    createBoundaryFence(region, config, both, fault),
  ]
  const cause = { reason: 'bench', by: 'bench', runId: null }
  const took = new Map<string, number[]>(fences.map(f => [f.name, []]))
  try {
    for (let round = 0; round < Number(flags.rounds); round += 1)
      for (const fence of fences) {
        const started = performance.now()
        await fence.apply(cause)
        const proofs = await fence.verify()
        took.get(fence.name)?.push(performance.now() - started)
        const open = proofs.filter(o => o.verdict !== 'pass')
        if (open.length > 0) process.stdout.write(`fence ${fence.name} was not proved: ${open.map(o => o.observed).join('; ')}\n`)
        await liftStanding(fence, cause)
      }
  } finally {
    await Promise.all(fences.map(async f => await f.close()))
    rmSync(folder, { recursive: true, force: true })
  }
  const medians = fences.map(f => ({ name: f.name, ms: p(took.get(f.name) ?? [], 50) }))
  process.stdout.write(
    `\na region of ${keys.length} keys, ${flags.rounds} rounds, apply and proof: ${medians.map(m => `${m.name} ${m.ms.toFixed(0)} ms`).join(', ')}\n`,
  )
  const slowest = Math.max(...medians.slice(0, -1).map(m => m.ms))
  verdict('boundary beyond the slowest other', (medians.at(-1)?.ms ?? Number.NaN) - slowest, REGION_AIM_MS, ' ms')
}

/** Everything that any session sends meanwhile, in the order it was sent. */
async function recorded(work: () => Promise<void>): Promise<{ sent: readonly Sent[]; tookMs: number }> {
  const sent: Sent[] = []
  // Put back below, and called with the client that it belongs to.
  const original = Object.getOwnPropertyDescriptor(pg.Client.prototype, 'query')?.value as typeof pg.Client.prototype.query
  pg.Client.prototype.query = function (this: pg.Client, ...args: unknown[]) {
    if (typeof args[0] === 'string')
      sent.push({ role: this.user ?? '', text: args[0], values: Array.isArray(args[1]) ? (args[1] as unknown[]) : [] })
    return (original as (...all: unknown[]) => unknown).apply(this, args)
  } as typeof original
  const started = performance.now()
  try {
    await work()
    return { sent, tookMs: performance.now() - started }
  } finally {
    pg.Client.prototype.query = original
  }
}

function through(region: RegionConfig, port: number): RegionConfig {
  const at = <T extends { readonly url: string }>(login: T): T => {
    const url = new URL(login.url)
    url.port = String(port)
    return { ...login, url: url.toString() }
  }
  const { operator, writers } = region.database
  return { ...region, database: { ...region.database, operator: at(operator), writers: writers.map(at) } }
}

async function session(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url })
  client.password = await secrets.read()
  await client.connect()
  return client
}

function roleOf(url: string): string {
  return decodeURIComponent(new URL(url).username)
}

/** A probe is meant to be refused. */
function refused(error: unknown): void {
  if (!(error instanceof pg.DatabaseError)) throw error
}

function verdict(what: string, value: number, aim: number, unit: string): void {
  process.stdout.write(`${value <= aim ? 'ok  ' : 'MISS'} ${what}: ${value.toFixed(2)}${unit}, aim ${aim}${unit}\n`)
}

function p(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1))] ?? Number.NaN
}
