import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import type { SandboxPolicy } from '../../sandbox/config-text.ts'
import { databaseUrl, type RegionLogin } from '../../sandbox/databases.ts'
import { APP_DATABASE, CONTROL_PLANE_DATABASE, type SandboxRegion } from '../../sandbox/layout.ts'
import { type Acknowledged, type Load, type LoadOptions, startLoad } from '../../sandbox/load.ts'
import type { Findings } from '../../sandbox/recorder.ts'
import { createSandbox, type RunningSandbox, type Sandbox } from '../../sandbox/sandbox.ts'
import { verifyAcks } from '../../sandbox/verify-acks.ts'
import { type CliOptions, type CliResult, type CliRun, runCli, startCli } from './cli.ts'
import { guardAgainstCrash } from './crash-guard.ts'

export type RigOptions = {
  /** Default: a new folder below the temporary folder. */
  readonly dir?: string
  readonly policy?: SandboxPolicy
  /** false: databases and brokers, but no service process. */
  readonly services?: boolean
}

export type RigRole = RegionLogin | 'postgres'

/** The sandbox, with what tests need around it. */
export interface Rig {
  readonly dir: string
  readonly sandbox: Sandbox
  readonly running: RunningSandbox
  /** Path of homeregion.yaml. */
  readonly config: string
  /** Runs the real command line to its end. Nothing is a terminal. */
  cli(args: readonly string[], options?: CliOptions): Promise<CliResult>
  /** Starts it and returns at once, for tests that stop or kill it. */
  startCli(args: readonly string[], options?: CliOptions): CliRun
  /** A connected client of the service's database in a region, or of the control plane. Ended by `stop` if the test does not. */
  pg(where: SandboxRegion | 'control-plane', role?: RigRole): Promise<pg.Client>
  /** Base address of a region's service. */
  serviceUrl(region: SandboxRegion): string
  /** Writers on the services of both regions; stopped by `stop` if the test does not. */
  load(options: Pick<LoadOptions, 'tenants'> & Partial<LoadOptions>): Load
  /** Holds acknowledged writes against what both regions and the control plane's log hold. Stop the load first. */
  verify(acks: readonly Acknowledged[]): Promise<Findings>
  /** Ends the clients of this rig, and the sandbox if this rig started it. */
  stop(): Promise<void>
}

// Short enough that tests of a lost lease take seconds, long enough that a busy machine keeps its own.
const TEST_POLICY: SandboxPolicy = { runLease: '5s', callTimeout: '4s', evidenceMaxAge: '5s' }

/** A rig of its own. It is taken down when this process dies, however it dies. */
export async function startRig(options: RigOptions = {}): Promise<Rig> {
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), 'homeregion-rig-'))
  const guard = guardAgainstCrash(dir)
  try {
    const rig = await attachRig({ ...options, dir })
    return {
      ...rig,
      stop: async () => {
        await rig.stop()
        await rig.sandbox.down()
        guard.release()
      },
    }
  } catch (error) {
    await createSandbox({ dir }).down()
    guard.release()
    throw error
  }
}

/** Uses the rig in `dir`, starting whatever does not run there; `stop` leaves it running. */
export async function attachRig(options: RigOptions & { readonly dir: string }): Promise<Rig> {
  const { services = true, policy = TEST_POLICY } = options
  const sandbox = createSandbox({ dir: options.dir, policy, services })
  const running = await sandbox.up()
  const config = sandbox.layout.config
  const clients = new Set<pg.Client>()
  const loads = new Set<Load>()
  const environment = { HOMEREGION_CONFIG: config, HOMEREGION_STATE_DIR: join(options.dir, 'state') }
  return {
    dir: options.dir,
    sandbox,
    running,
    config,
    cli: async (args, cliOptions = {}) => await runCli(args, environment, cliOptions),
    startCli: (args, cliOptions = {}) => startCli(args, environment, cliOptions),
    pg: async (where, role = 'postgres') => {
      const client = new pg.Client({ connectionString: connectionUrl(sandbox, running, where, role), connectionTimeoutMillis: 5000 })
      // A test that kills the server would otherwise end with an unhandled error of an idle client.
      client.on('error', () => undefined)
      await client.connect()
      clients.add(client)
      return client
    },
    serviceUrl: region => {
      const service = running.services.find(s => s.region === region)
      if (service === undefined) throw new Error(`this rig has no service in ${region}`)
      return service.url
    },
    load: loadOptions => {
      const load = startLoad({ services: running.services, ...loadOptions })
      loads.add(load)
      return load
    },
    verify: async acks => await verifyAcks(running, acks),
    stop: async () => {
      await Promise.all([...loads].map(async load => await load.stop()))
      loads.clear()
      await Promise.all([...clients].map(async client => await client.end().catch(() => undefined)))
      clients.clear()
    },
  }
}

function connectionUrl(sandbox: Sandbox, running: RunningSandbox, where: SandboxRegion | 'control-plane', role: RigRole): string {
  const server = where === 'control-plane' ? running.controlPlane : running.regions[where].postgres
  const url = new URL(databaseUrl(server.adminUrl, where === 'control-plane' ? CONTROL_PLANE_DATABASE : APP_DATABASE))
  if (role === 'postgres') return url.toString()
  url.username = role
  url.password = sandbox.secrets.read(`${where}.${role}`)
  return url.toString()
}
