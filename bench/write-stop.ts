/**
 * How long a key cannot be written while it moves, as its writers see it: last acknowledged write at the source to first at the target, by
 * the load's one clock; beside the trip of one event (outbox, Kafka, inbox) in the same run.
 *   npm run bench:write-stop -- --moves 50
 *   npm run bench:write-stop -- --moves 20 --delay 40     the command line is 40 ms away from everything it talks to
 *   npm run bench:write-stop -- --trace                   what is asked of whom between the drain and the activation
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { REGIONS, type SandboxRegion } from '../sandbox/layout.ts'
import { waitUntil } from '../sandbox/wait-until.ts'
import { runCli } from '../test/rig/cli.ts'
import { attachRig, type Rig, startRig } from '../test/rig/rig.ts'
import { type Burst, type DelayingProxy, startDelayingProxy } from './delaying-proxy.ts'
import { traceLines } from './round-trips.ts'

const { values: flags } = parseArgs({
  options: {
    moves: { type: 'string', default: '50' },
    /** Milliseconds each way between the command line and all it talks to. */
    delay: { type: 'string', default: '0' },
    /** Writes per second of the key that moves. */
    rate: { type: 'string', default: '100' },
    /** Folder of a sandbox that runs already. */
    dir: { type: 'string' },
    trace: { type: 'boolean', default: false },
  },
})
const moves = Number(flags.moves)
const delayMs = Number(flags.delay)
const KEY = 'tenant-7'
const ROUND_TRIPS = 10
const PATRONI_MS = 1300

const rig = flags.dir === undefined ? await startRig() : await attachRig({ dir: flags.dir })
const folder = mkdtempSync(join(tmpdir(), 'homeregion-bench-'))
const bursts: Burst[] = []
const proxies: DelayingProxy[] = []
try {
  const config = delayMs > 0 || flags.trace ? await distantConfig(rig) : rig.config
  const stops = await measure(rig, config)
  report(stops, await trips(rig, stops.since))
} finally {
  await Promise.all(proxies.map(async p => await p.close()))
  await rig.stop()
  rmSync(folder, { recursive: true, force: true })
}

/** A copy of the configuration in which every address is a proxy's. A broker advertises its own listener, so of Kafka only the first contact is far. */
async function distantConfig({ config, running }: Rig): Promise<string> {
  const servers = [
    { name: 'control plane', port: Number(new URL(running.controlPlane.adminUrl).port) },
    ...REGIONS.flatMap(region => [
      { name: `${region} database`, port: Number(new URL(running.regions[region].postgres.adminUrl).port) },
      { name: `${region} Kafka`, port: Number(running.regions[region].kafka.brokers[0]?.split(':')[1]) },
    ]),
  ]
  let text = readFileSync(config, 'utf8')
  for (const { name, port } of servers) {
    const proxy = await startDelayingProxy({ name, target: { host: '127.0.0.1', port }, delayMs, onBurst: burst => bursts.push(burst) })
    proxies.push(proxy)
    text = text.replaceAll(`127.0.0.1:${port}`, `127.0.0.1:${proxy.port}`)
  }
  const file = join(folder, 'homeregion.yaml')
  writeFileSync(file, text, { mode: 0o600 })
  return file
}

type Measured = { readonly stopsMs: readonly number[]; readonly traces: readonly (readonly string[])[]; readonly since: Date }

async function measure(on: Rig, config: string): Promise<Measured> {
  const control = await on.pg('control-plane')
  const homeOf = async () =>
    (await control.query<{ home: SandboxRegion }>('select home_region as home from homeregion_control.ownership where key = $1', [KEY]))
      .rows[0]?.home
  const since = new Date()
  const first = (await homeOf()) ?? 'region-a'
  // Two writers at most wait for the key at a time: more would measure their own crowd.
  const load = on.load({ tenants: [KEY], ratePerSecond: Number(flags.rate), concurrency: 2, home: first })
  const traces: (readonly string[])[] = []
  try {
    for (let i = 0; i < moves; i += 1) {
      const from = (await homeOf()) ?? first
      const target = from === 'region-a' ? 'region-b' : 'region-a'
      const acked = load.acks.length
      await waitUntil(() => load.acks.length > acked + 20, 10_000)
      bursts.length = 0
      const startedMs = performance.now()
      const done = await runCli(
        ['transfer', KEY, '--to', target, '--yes', '--confirm', KEY, '--observe', '0s'],
        { HOMEREGION_CONFIG: config },
        { timeoutMs: 120_000 },
      )
      if (done.code !== 0) throw new Error(`move ${i + 1} ended with ${done.code}:\n${done.stdout}${done.stderr}`)
      if (!(await waitUntil(() => (load.acks.at(-1)?.region ?? '') === target, 10_000))) throw new Error('no write at the target')
      const stop = load.writeStops().findLast(s => s.to === target && s.lastAckAtMs >= startedMs)
      if (stop !== undefined) traces.push(traceLines(bursts, stop))
      process.stderr.write(`\rmove ${i + 1} of ${moves}: ${stop?.stopMs.toFixed(0) ?? '?'} ms   `)
    }
  } finally {
    await load.stop()
    process.stderr.write('\n')
  }
  return { stopsMs: load.writeStops().map(s => s.stopMs), traces, since }
}

/** From the event's own time to its row in the inbox, for every event of the run: both databases stand on this machine and share its clock. */
async function trips(on: Rig, since: Date): Promise<readonly number[]> {
  const clients = await Promise.all(REGIONS.map(async region => await on.pg(region)))
  const read = async (sql: string) =>
    (await Promise.all(clients.map(async c => (await c.query<{ id: string; at: number }>(sql, [since])).rows))).flat()
  const written = await read(
    `select event_id::text as id, extract(epoch from occurred_at)::float8 * 1000 as at from public.outbox
     where tenant_id = '${KEY}' and occurred_at >= $1 and event_type <> 'homeregion.barrier'`,
  )
  const applied = new Map(
    (
      await read(
        `select event_id::text as id, extract(epoch from applied_at)::float8 * 1000 as at from public.inbox where applied_at >= $1`,
      )
    ).map(r => [r.id, r.at]),
  )
  return written.flatMap(w => {
    const at = applied.get(w.id)
    return at === undefined ? [] : [at - w.at]
  })
}

function report(stops: Measured, tripsMs: readonly number[]): void {
  const trip = { p50: percentile(tripsMs, 50), p99: percentile(tripsMs, 99) }
  const stop = { p50: percentile(stops.stopsMs, 50), p99: percentile(stops.stopsMs, 99) }
  const line = (name: string, value: number, limit: number) =>
    process.stdout.write(`${value <= limit ? 'ok  ' : 'MISS'} ${name}: ${value.toFixed(1)} ms, aim ${limit.toFixed(1)} ms\n`)
  process.stdout.write(`write stop of ${stops.stopsMs.length} moves, ${flags.rate} writes/s of the key, ${delayMs} ms each way\n`)
  process.stdout.write(`one event's trip (${tripsMs.length} events): p50 ${trip.p50.toFixed(1)} ms, p99 ${trip.p99.toFixed(1)} ms\n`)
  process.stdout.write(`write stop: p50 ${stop.p50.toFixed(1)} ms, p99 ${stop.p99.toFixed(1)} ms\n`)
  if (delayMs === 0) {
    line('p50, 2 trips', stop.p50, 2 * trip.p50)
    line('p99, 3 trips', stop.p99, 3 * trip.p50)
    line("p50, a tenth of Patroni's switchover", stop.p50, PATRONI_MS / 10)
    process.stdout.write(`ratio to a trip: p50 ${(stop.p50 / trip.p50).toFixed(2)}, p99 ${(stop.p99 / trip.p50).toFixed(2)}\n`)
  } else {
    line(`p50, a trip and ${ROUND_TRIPS} round trips`, stop.p50, trip.p50 + ROUND_TRIPS * 2 * delayMs)
    process.stdout.write(`round trips: p50 ${((stop.p50 - trip.p50) / (2 * delayMs)).toFixed(1)} beside one trip\n`)
  }
  const last = stops.traces.at(-1)
  if (last !== undefined && last.length > 0)
    process.stdout.write(`\nlast move, ms since the last acknowledged write at the source\n${last.join('\n')}\n`)
}

function percentile(values: readonly number[], p: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.ceil((p / 100) * sorted.length) - 1)] ?? Number.NaN
}
