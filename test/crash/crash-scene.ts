import type pg from 'pg'
import { expect } from 'vitest'
import { REGIONS, type SandboxRegion } from '../../sandbox/layout.ts'
import type { Acknowledged, Load } from '../../sandbox/load.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import type { CliResult, CliRun } from '../rig/cli.ts'
import type { Rig } from '../rig/rig.ts'
import { admitting } from './writers-watch.ts'

export type Record = { readonly home: SandboxRegion; readonly state: string; readonly epoch: number }
export type LogLine = { readonly transition: string; readonly epoch: number; readonly home: SandboxRegion }

/** What the tests of crashes ask of a rig: commands that may be killed, and looks at the three databases that no command is in the way of. */
export type Scene = {
  register(keys: readonly string[], home?: SandboxRegion): Promise<void>
  transfer(key: string, to: SandboxRegion, fault?: string): Promise<CliResult>
  startTransfer(keys: readonly string[], to: SandboxRegion, fault?: string): CliRun
  resume(run: string, key: string, fault?: string): Promise<CliResult>
  resumeAll(run: string, keys: readonly string[], fault?: string): Promise<CliResult>
  abort(run: string, fault?: string): Promise<CliResult>
  /** Run that holds the key, or null. */
  openRun(key: string): Promise<string | null>
  openRunOf(keys: readonly string[]): Promise<string | null>
  record(key: string): Promise<Record>
  log(key: string): Promise<readonly LogLine[]>
  boundaryState(region: SandboxRegion, key: string): Promise<string | null>
  /** Barriers of the key per epoch, over both outboxes. */
  barriers(key: string): Promise<ReadonlyMap<number, number>>
  /** Events, the barrier included, that a region has written of a key under this epoch or an older one. */
  eventsWritten(region: SandboxRegion, key: string, epoch: number): Promise<number>
  /** Regions that admit a real write of the key as the service's login, both transactions open at the same time. */
  admitting(key: string): Promise<readonly SandboxRegion[]>
  /** Every event of keys with this prefix has left its outbox and is in the other region's inbox. */
  caughtUp(prefix: string): Promise<void>
}

// Generous: it bounds the wait for what will come, and a busy machine may be slow.
const CAUGHT_UP_MS = 60_000

// Only a bound: a command that hangs is killed and fails its test.
const COMMAND_MS = 120_000

export async function createScene(rig: Rig): Promise<Scene> {
  const control = await rig.pg('control-plane')
  const admins = { 'region-a': await rig.pg('region-a'), 'region-b': await rig.pg('region-b') }
  const environment = (fault: string | undefined) => ({
    timeoutMs: COMMAND_MS,
    ...(fault === undefined ? {} : { env: { HOMEREGION_FAULT: fault } }),
  })
  // Lanes share these sessions; each waits for the one before it.
  const turns = new Map<pg.Client, Promise<unknown>>()
  const one = async <T extends pg.QueryResultRow>(client: pg.Client, sql: string, values: readonly unknown[]): Promise<readonly T[]> => {
    const before = turns.get(client)?.catch(() => undefined) ?? Promise.resolve()
    const answer = before.then(async () => (await client.query<T>(sql, [...values])).rows)
    turns.set(client, answer)
    return await answer
  }
  const answers = (keys: readonly string[]) => [
    ...['--yes', '--observe', '0s'],
    ...(keys.length === 1 ? ['--confirm', keys[0] ?? ''] : ['--confirm-count', String(keys.length)]),
  ]
  const startTransfer: Scene['startTransfer'] = (keys, to, fault) =>
    rig.startCli(['transfer', ...keys, '--to', to, ...answers(keys)], environment(fault))
  const resumeAll: Scene['resumeAll'] = async (run, keys, fault) => await rig.cli(['resume', run, ...answers(keys)], environment(fault))
  const openRunOf: Scene['openRunOf'] = async keys => {
    const sql = 'select run_id from homeregion_control.run_key where key = any ($1) and open limit 1'
    return (await one<{ run_id: string }>(control, sql, [keys]))[0]?.run_id ?? null
  }
  return {
    register: async (keys, home = 'region-a') => {
      const done = await rig.cli(['key', 'add', ...keys, '--home', home])
      expect(done.code, done.stderr).toBe(0)
    },
    transfer: async (key, to, fault) => await startTransfer([key], to, fault).done,
    startTransfer,
    resume: async (run, key, fault) => await resumeAll(run, [key], fault),
    resumeAll,
    abort: async (run, fault) => await rig.cli(['abort', run], environment(fault)),
    openRun: async key => await openRunOf([key]),
    openRunOf,
    record: async key => {
      const sql = 'select home_region as home, state, epoch::int from homeregion_control.ownership where key = $1'
      const [found] = await one<Record>(control, sql, [key])
      if (found === undefined) throw new Error(`${key} is not registered`)
      return found
    },
    log: async key =>
      await one<LogLine>(
        control,
        'select transition, to_epoch::int as epoch, to_home as home from homeregion_control.ownership_log where key = $1 order by seq',
        [key],
      ),
    boundaryState: async (region, key) =>
      (await one<{ state: string }>(admins[region], 'select state from homeregion.read($1)', [key]))[0]?.state ?? null,
    barriers: async key => {
      const sql = `select owner_epoch::int as epoch, count(*)::int as n from public.outbox
        where tenant_id = $1 and event_type = 'homeregion.barrier' group by 1`
      const all = await Promise.all(REGIONS.map(async region => await one<{ epoch: number; n: number }>(admins[region], sql, [key])))
      const counts = new Map<number, number>()
      for (const { epoch, n } of all.flat()) counts.set(epoch, (counts.get(epoch) ?? 0) + n)
      return counts
    },
    admitting: async key => {
      const writers = await Promise.all(REGIONS.map(async region => ({ region, client: await rig.pg(region, 'app_writer') })))
      try {
        return await admitting(writers, key)
      } finally {
        await Promise.all(writers.map(async ({ client }) => await client.end()))
      }
    },
    eventsWritten: async (region, key, epoch) => {
      const sql = `select count(*)::int as n from public.outbox where tenant_id = $1 and owner_epoch <= $2 and source_region = $3`
      return (await one<{ n: number }>(admins[region], sql, [key, epoch, region]))[0]?.n ?? 0
    },
    caughtUp: async prefix => {
      let open: readonly string[] = []
      const done = await waitUntil(async () => {
        open = await notArrived(one, admins, prefix)
        return open.length === 0
      }, CAUGHT_UP_MS)
      if (!done) throw new Error(`${open.length} events have not arrived: ${open.slice(0, 5).join(', ')}`)
    },
  }
}

type Query = <T extends pg.QueryResultRow>(client: pg.Client, sql: string, values: readonly unknown[]) => Promise<readonly T[]>

async function notArrived(query: Query, admins: Readonly<{ [R in SandboxRegion]: pg.Client }>, prefix: string): Promise<readonly string[]> {
  const ids = async (client: pg.Client, table: string) =>
    (
      await query<{ id: string }>(client, `select event_id::text as id from public.${table} where starts_with(tenant_id, $1)`, [prefix])
    ).map(r => r.id)
  const [outA, outB, inA, inB] = await Promise.all([
    ids(admins['region-a'], 'outbox'),
    ids(admins['region-b'], 'outbox'),
    ids(admins['region-a'], 'inbox'),
    ids(admins['region-b'], 'inbox'),
  ])
  const [atA, atB] = [new Set(inA), new Set(inB)]
  return [...outA.filter(id => !atB.has(id)), ...outB.filter(id => !atA.has(id))]
}

const ACKNOWLEDGED_MS = 30_000

/** Waits for a write that was sent after `sinceMs` and acknowledged by `region` under `epoch`. */
export async function acknowledgedAt(load: Load, region: SandboxRegion, epoch: number, sinceMs: number): Promise<void> {
  const seen = (a: Acknowledged) => !a.replayed && a.region === region && a.epoch === epoch && a.lastSentAtMs >= sinceMs
  const done = await waitUntil(() => load.acks.some(seen), ACKNOWLEDGED_MS)
  const last = load.acks.at(-1)
  const shown = `last acknowledgement ${JSON.stringify(last)}, last refusal ${JSON.stringify(load.refusals.at(-1))}`
  if (!done) throw new Error(`no write was acknowledged by ${region} under epoch ${epoch}: ${shown}`)
}

/** Runs `work` for each, at most `width` at a time, in order. All are run; the failures come together, each with its name. */
export async function sideBySide<T>(
  items: readonly T[],
  width: number,
  name: (item: T) => string,
  work: (item: T) => Promise<void>,
): Promise<void> {
  const left = [...items]
  const failures: string[] = []
  const lane = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) {
      const current = item
      await work(current).catch((error: unknown) => {
        failures.push(`${name(current)}: ${error instanceof Error ? error.message : String(error)}`)
      })
    }
  }
  await Promise.all(Array.from({ length: width }, lane))
  if (failures.length > 0) throw new Error(`${failures.length} of ${items.length} failed\n${failures.join('\n')}`)
}
