import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type pg from 'pg'
import { type CommandEnd, createCommandLine } from './command-line.ts'
import { databaseUrl, withClient } from './databases.ts'
import { CONTROL_PLANE_DATABASE, KEYS } from './layout.ts'
import { type Acknowledged, type Load, startLoad } from './load.ts'
import { killProcess } from './processes.ts'
import type { Findings } from './recorder.ts'
import { createSandbox, type RunningSandbox } from './sandbox.ts'
import { sandboxError } from './sandbox-error.ts'
import { kafkaName, postgresName } from './servers.ts'
import { serviceName } from './services.ts'
import { verifyAcks } from './verify-acks.ts'
import { waitUntil } from './wait-until.ts'

/** A sandbox that is there for one rehearsal: an agent, writers on a few keys, and a source that can be made dark. */
export interface DrillSite {
  readonly dir: string
  /** Path of homeregion.yaml. */
  readonly config: string
  readonly keys: readonly string[]
  /** Returns when the writers have been served and the agent can say how much they write. */
  up(): Promise<void>
  /** What the writers were told, in order; times are `performance.now()`. */
  acks(): readonly Acknowledged[]
  /** The source's Kafka is killed; its users write on, and what they write leaves it no more. */
  cutOff(): Promise<void>
  /** Everything of the source is killed, at once. @returns when that began */
  goDark(): Promise<number>
  /** The source starts again on what its disks hold. */
  comeBack(): Promise<void>
  command(args: readonly string[]): Promise<CommandEnd>
  /** False when the deadline passed first. @throws the signal's reason when it is aborted */
  until(condition: () => boolean | Promise<boolean>, timeoutMs: number): Promise<boolean>
  stopWriters(): Promise<void>
  /** Holds what the writers were told against both databases; `givenUp` are ids of events that were let go of. */
  verify(givenUp: ReadonlySet<string>): Promise<Findings>
  down(): Promise<void>
}

const SOURCE = 'region-a'
// Enough for one to be moved while another is written; few enough that the way back takes seconds.
const CANARIES = 5
const WRITES_PER_SECOND = 20
const WRITERS = 3
/** Writers that find every region closed for seconds leave the machine to those who work on it; the figure is one of seconds. */
const BACKOFF_MS = 25
/** Writes that only the source has when it goes dark, so that there is something to lose and to list. */
const CUT_OFF_WRITES = 10

/** Times for a machine that runs everything by itself: long enough that it keeps its leases, short enough to be waited out. */
const SETTINGS = {
  policy: { evidenceMaxAge: '8s', runLease: '8s', callTimeout: '4s', darkAfter: '2s', loss: [{ keys: '*', rpo: 'any' }] },
  lease: { duration: '6s', margin: '1s', onAgentOutage: 'stop' },
  observeEvery: '500ms',
} as const

export function createDrillSite(signal: AbortSignal): DrillSite {
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-drill-'))
  const sandbox = createSandbox({ dir, ...SETTINGS })
  const { processes, layout } = sandbox
  const commands = createCommandLine({ config: layout.config, stateDir: join(dir, 'state'), signal })
  const keys = KEYS.slice(0, CANARIES)
  let running: RunningSandbox | null = null
  let load: Load | null = null
  const acks = () => load?.acks ?? []
  const until = async (condition: () => boolean | Promise<boolean>, timeoutMs: number) =>
    await waitUntil(async () => {
      signal.throwIfAborted()
      return await condition()
    }, timeoutMs)
  const kill = async (names: readonly string[]) =>
    void (await Promise.all(processes.list().flatMap(p => (names.includes(p.name) ? [killProcess(p)] : []))))
  const needed = async (what: string, condition: () => boolean | Promise<boolean>, timeoutMs: number) => {
    if (await until(condition, timeoutMs)) return
    throw sandboxError(`${what}: not within ${timeoutMs / 1000} s`, 'the same command on a machine with less to do')
  }

  return {
    ...{ dir, config: layout.config, keys, acks, until },
    up: async () => {
      const started = await sandbox.up()
      running = started
      signal.throwIfAborted()
      commands.background('agent', ['agent', '--listen', '127.0.0.1:0'], processes)
      const pace = { ratePerSecond: WRITES_PER_SECOND, concurrency: WRITERS, backoffMs: BACKOFF_MS }
      load = startLoad({ services: started.services, tenants: keys, home: SOURCE, ...pace })
      await needed('the writers are served', () => new Set(acks().map(a => a.key)).size === keys.length, 60_000)
      await withControlPlane(started, async client => {
        await needed('the agent has watched the writers', async () => await watched(client), 60_000)
      })
    },
    cutOff: async () => {
      await kill([kafkaName(SOURCE)])
      const before = acks().length
      await needed('users write on', () => acks().length >= before + CUT_OFF_WRITES, 30_000)
    },
    goDark: async () => {
      const atMs = performance.now()
      await kill([postgresName(SOURCE), serviceName(SOURCE)])
      return atMs
    },
    comeBack: async () => {
      running = await sandbox.up({ installed: true })
    },
    command: async args => await commands.run(args),
    stopWriters: async () => void (await load?.stop()),
    verify: async givenUp => {
      if (running === null) throw new RangeError('the site is not up')
      return await verifyAcks(running, acks(), givenUp)
    },
    down: async () => {
      await load?.stop(0)
      await sandbox.down()
    },
  }
}

/** A bound in writes needs a rate, and a bound in time the age of the oldest: the agent has both after a few looks. */
async function watched(client: pg.Client): Promise<boolean> {
  const { rowCount } = await client.query(
    `select from homeregion_control.region_observation where region = $1 and highest_per_second is not null and not_applied ? 'region-b'`,
    [SOURCE],
  )
  return (rowCount ?? 0) > 0
}

async function withControlPlane({ controlPlane }: RunningSandbox, work: (client: pg.Client) => Promise<void>): Promise<void> {
  const limits = { connectionTimeoutMillis: 5000, statement_timeout: 5000 }
  await withClient(databaseUrl(controlPlane.adminUrl, CONTROL_PLANE_DATABASE), work, limits)
}
