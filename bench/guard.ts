/**
 * What the guard costs. Every figure is a ratio of two runs of the same load, taken alternately (A B B A) on one server, so that a
 * machine that slows down slows both. `npm run bench:guard -- --seconds 4 --rounds 4`
 */
import { parseArgs } from 'node:util'
import { type Load, runLoad } from './guard-load.ts'
import { type BenchServer, startBenchServer } from './guard-server.ts'

const { values: flags } = parseArgs({
  options: {
    seconds: { type: 'string', default: '4' },
    rounds: { type: 'string', default: '4' },
    clients: { type: 'string', default: '8' },
    only: { type: 'string' },
    version: { type: 'string', default: '18' },
    // Of a region whose writes stop at its lease's end; its aims are those of a region without one.
    lease: { type: 'boolean', default: false },
  },
})

/** `against`: the table set whose figure is 1. `guarded` has the boundary's triggers, `empty` triggers that do nothing, `plain` none. */
type Case = { name: string; aim: number | null; load: Load; measured: string; against: string }

const single = (table: string) => [`insert into ${table}.event (tenant_id, body) values ('tenant-1', 'x')`]
const outbox = (schema: string) => [
  'begin',
  `select version from ${schema}.entry where tenant_id = 'tenant-1' and entry_id = :entry`,
  `update ${schema}.entry set version = version + 1 where tenant_id = 'tenant-1' and entry_id = :entry`,
  `insert into ${schema}.event (tenant_id, body) values ('tenant-1', 'x')`,
  `insert into ${schema}.request (tenant_id, body) values ('tenant-1', 'x')`,
  'commit',
]
const bulk = (schema: string) => [`insert into ${schema}.bulk (tenant_id, body) select 'tenant-1', 'x' from generate_series(1, 1000)`]

const CASES: readonly Case[] = [
  {
    name: 'outbox transaction, 2 ms per statement',
    aim: 0.98,
    load: { statements: outbox, pauseUs: 2000 },
    measured: 'guarded',
    against: 'plain',
  },
  {
    name: 'outbox transaction, 0.5 ms per statement',
    aim: 0.95,
    load: { statements: outbox, pauseUs: 500 },
    measured: 'guarded',
    against: 'plain',
  },
  {
    name: 'one row, saturated, of an empty trigger',
    aim: 0.85,
    load: { statements: single, pauseUs: 0 },
    measured: 'guarded',
    against: 'empty',
  },
  {
    name: '1,000 rows, saturated, of an empty trigger',
    aim: 0.9,
    load: { statements: bulk, pauseUs: 0 },
    measured: 'guarded',
    against: 'empty',
  },
  { name: 'one row, saturated, of no trigger', aim: null, load: { statements: single, pauseUs: 0 }, measured: 'guarded', against: 'plain' },
  {
    name: '1,000 rows, saturated, of no trigger',
    aim: null,
    load: { statements: bulk, pauseUs: 0 },
    measured: 'guarded',
    against: 'plain',
  },
]

async function ratios(server: BenchServer, c: Case): Promise<{ ratios: number[]; tps: number[] }> {
  const run = async (schema: string) =>
    await runLoad(server, c.load, schema, { clients: Number(flags.clients), seconds: Number(flags.seconds) })
  const out = { ratios: [] as number[], tps: [] as number[] }
  for (let round = 0; round < Number(flags.rounds); round += 1) {
    await server.empty()
    const order = round % 2 === 0 ? [c.measured, c.against, c.against, c.measured] : [c.against, c.measured, c.measured, c.against]
    const sums: Record<string, number> = {}
    for (const schema of order) sums[schema] = (sums[schema] ?? 0) + (await run(schema))
    out.ratios.push((sums[c.measured] ?? 0) / (sums[c.against] ?? 1))
    out.tps.push((sums[c.measured] ?? 0) / 2)
  }
  return out
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b)
  return ((sorted[(sorted.length - 1) >> 1] ?? 0) + (sorted[sorted.length >> 1] ?? 0)) / 2
}

const server = await startBenchServer(flags.version === '15' ? 15 : 18, flags.lease)
try {
  process.stdout.write(
    `PostgreSQL ${flags.version}, ${flags.clients} clients, ${flags.rounds} rounds of 4 x ${flags.seconds} s, load by ${server.driver}\n`,
  )
  process.stdout.write('| load | ratio (min, median, max) | aim | guarded per second |\n|---|---|---|---|\n')
  for (const c of CASES.filter(c => flags.only === undefined || c.name.includes(flags.only))) {
    const { ratios: all, tps } = await ratios(server, c)
    const [low, mid, high] = [Math.min(...all), median(all), Math.max(...all)].map(n => n.toFixed(3))
    process.stdout.write(`| ${c.name} | ${low} / **${mid}** / ${high} | ${c.aim ?? '-'} | ${Math.round(median(tps))} |\n`)
  }
} finally {
  await server.stop()
}
