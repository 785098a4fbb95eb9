import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { configText, type SandboxSettings, type Servers } from './config-text.ts'
import { initialise } from './initialise.ts'
import { type Layout, layout, REGIONS, type SandboxRegion } from './layout.ts'
import { createProcessTable, isRunning, killProcess, type ProcessTable, stopProcess } from './processes.ts'
import { sandboxError } from './sandbox-error.ts'
import { createSandboxSecrets, type SandboxSecrets } from './sandbox-secrets.ts'
import { CONTROL_PLANE, endServerStrays, kafkaName, postgresName, runningServers, startServers } from './servers.ts'
import { restartService, runningServices, type Service, serviceName, startServices } from './services.ts'
import { withUpLock } from './up-lock.ts'

export type SandboxOptions = SandboxSettings & {
  /** Default: one folder per user below the temporary folder. */
  readonly dir?: string
  readonly progress?: (line: string) => void
  /** false: databases and brokers only. */
  readonly services?: boolean
}

export type ComponentState = { readonly name: string; readonly running: boolean; readonly pid: number | null; readonly log: string }

export type RunningSandbox = Servers & { readonly services: readonly Service[] }

/** Two regions and a control plane on this machine. Every call may be made by another process than the one before. */
export interface Sandbox {
  readonly layout: Layout
  readonly secrets: SandboxSecrets
  readonly processes: ProcessTable
  /**
   * Starts what does not run. Repeatable, also after a kill of anything at any moment. `installed`: an earlier `up` of this process has installed
   * everything, and is not asked to look again.
   */
  up(options?: { readonly installed?: boolean }): Promise<RunningSandbox>
  /** What `up` left running. @throws `sandbox` when a part is missing */
  running(): Promise<RunningSandbox>
  /** Stops everything; `keep` leaves data and logs for the next `up`. False: there was no sandbox in the folder. */
  down(options?: { readonly keep?: boolean }): Promise<boolean>
  status(): readonly ComponentState[]
  restartService(region: SandboxRegion, servers: Servers): Promise<Service>
}

const MARK = '.homeregion-sandbox'

export function createSandbox(options: SandboxOptions = {}): Sandbox {
  const paths = layout(options.dir)
  const table = createProcessTable(paths.processes)
  const secrets = createSandboxSecrets(paths.secrets)
  const progress = options.progress ?? (() => undefined)
  const context = { layout: paths, table, secrets, progress }
  return {
    layout: paths,
    secrets,
    processes: table,
    async up({ installed = false } = {}) {
      claimFolder(paths.dir)
      return await withUpLock(paths.lock, async () => {
        const servers = await startServers(context)
        writeConfiguration(paths, configText(servers, secrets, options), progress)
        if (!installed) await initialise(paths, progress)
        const services = options.services === false ? [] : await startServices({ ...context, servers })
        for (const service of services) progress(`${service.region}          service on ${service.url}`)
        return { ...servers, services }
      })
    },
    async running() {
      const servers = await runningServers(context)
      const services = runningServices(context)
      if (servers !== null && services.length === REGIONS.length) return { ...servers, services }
      throw sandboxError(`the sandbox in ${paths.dir} is not up, or a part of it has stopped`, 'homeregion sandbox up')
    },
    async down({ keep = false } = {}) {
      if (!existsSync(join(paths.dir, MARK))) return false
      await withUpLock(paths.lock, async () => {
        await stopAll(table)
        await endServerStrays(paths)
        if (!keep) rmSync(paths.dir, { recursive: true, force: true })
      })
      return true
    },
    status: () => components(paths).map(({ name, log }) => ({ name, log, ...state(table, name) })),
    restartService: async (region, servers) => await restartService({ ...context, servers }, region),
  }
}

/** Refuses a folder with other things in it: `down` removes the folder. */
function claimFolder(dir: string): void {
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  const mark = join(dir, MARK)
  if (existsSync(mark)) return
  if (readdirSync(dir).length > 0) {
    throw sandboxError(`${dir} is not empty and no sandbox of homeregion`, 'choose another folder: homeregion sandbox up --dir FOLDER')
  }
  writeFileSync(mark, 'homeregion sandbox down removes this folder\n')
}

/** What somebody tried out in it is not lost: the sandbox needs its own, and theirs is kept beside it. */
function writeConfiguration(paths: Layout, text: string, progress: (line: string) => void): void {
  const former = existsSync(paths.config) ? readFileSync(paths.config, 'utf8') : text
  if (former !== text) {
    writeFileSync(`${paths.config}.former`, former, { mode: 0o600 })
    progress(`${basename(paths.config)} is reset to the sandbox's own; what stood there is kept: ${basename(paths.config)}.former`)
  }
  writeFileSync(paths.config, text, { mode: 0o600 })
  writeFileSync(paths.environment, `export HOMEREGION_CONFIG='${paths.config.replaceAll("'", "'\\''")}'\n`, { mode: 0o600 })
}

/** Services first: they write to the others while they live. */
async function stopAll(table: ProcessTable): Promise<void> {
  const all = table.list()
  const services = all.filter(p => REGIONS.some(region => p.name === serviceName(region)))
  await Promise.all(services.map(stopProcess))
  const rest = all.filter(p => !services.includes(p))
  await Promise.all(rest.map(stopProcess))
  const left = all.filter(isRunning)
  await Promise.all(left.map(killProcess))
  for (const { name } of all) table.forget(name)
}

function components(paths: Layout): readonly { name: string; log: string }[] {
  return [
    { name: CONTROL_PLANE, log: join(paths.controlPlane, 'postgres.log') },
    ...REGIONS.flatMap(region => {
      const at = paths.region(region)
      return [
        { name: postgresName(region), log: join(at.postgres, 'postgres.log') },
        { name: kafkaName(region), log: join(at.kafka, 'kafka.log') },
        { name: serviceName(region), log: join(at.service, 'service.log') },
      ]
    }),
  ]
}

function state(table: ProcessTable, name: string): { running: boolean; pid: number | null } {
  const recorded = table.find(name)
  const running = recorded !== null && isRunning(recorded)
  return { running, pid: running ? recorded.pid : null }
}
