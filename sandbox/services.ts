import { spawn } from 'node:child_process'
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { packageFile } from '../src/adapters/files/package-root.ts'
import { allSettled } from './all-settled.ts'
import { loginUrl, type Servers } from './config-text.ts'
import { freePorts } from './free-ports.ts'
import { APP_DATABASE, inboxGroup, type Layout, OWNERSHIP_TOPIC, outboxTopic, REGIONS, type SandboxRegion } from './layout.ts'
import { isRunning, killProcess, type ProcessRecord, type ProcessTable, startTimeOf, stopProcess } from './processes.ts'
import { sandboxError } from './sandbox-error.ts'
import type { SandboxSecrets } from './sandbox-secrets.ts'
import type { ServiceConfig, ServiceReady, ServiceStream } from './service-config.ts'
import { endStrays } from './strays.ts'
import { tsxLoader } from './tsx-loader.ts'
import { waitUntil } from './wait-until.ts'

export type Service = { readonly region: SandboxRegion; readonly url: string; readonly process: ProcessRecord; readonly logFile: string }

export type ServiceContext = {
  readonly layout: Layout
  readonly table: ProcessTable
  readonly secrets: SandboxSecrets
  readonly servers: Servers
}

// 1 s on an idle machine; a laptop that builds something else at the same time has needed half a minute.
const START_TIMEOUT_MS = 90_000
const STOP_GRACE_MS = 5_000

/** Starts the services that do not run, and starts again those whose databases or brokers have moved. */
export async function startServices(context: ServiceContext): Promise<readonly Service[]> {
  for (let attempt = 1; ; attempt++) {
    const ports = await choosePorts(context.layout, attempt > 1)
    try {
      return await allSettled(REGIONS.map(region => ensureService(context, region, ports)))
    } catch (error) {
      // A port taken meanwhile: both get new ones, because each knows the other's.
      if (attempt === 3 || !(error instanceof PortTaken)) throw error
    }
  }
}

/** The services that run now. Starts nothing. */
export function runningServices({ layout, table }: Pick<ServiceContext, 'layout' | 'table'>): readonly Service[] {
  return REGIONS.flatMap(region => {
    const recorded = table.find(serviceName(region))
    const file = join(layout.region(region).service, 'service.json')
    if (recorded === null || !isRunning(recorded) || !existsSync(file)) return []
    const { http } = JSON.parse(readFileSync(file, 'utf8')) as ServiceConfig
    return [service(layout, region, http.port, recorded)]
  })
}

/** Starts one region's service again after it was stopped or killed; the other goes on. */
export async function restartService(context: ServiceContext, region: SandboxRegion): Promise<Service> {
  return await ensureService(context, region, await choosePorts(context.layout, false))
}

class PortTaken extends Error {}

type Ports = Readonly<Record<SandboxRegion, number>>

async function ensureService(context: ServiceContext, region: SandboxRegion, ports: Ports): Promise<Service> {
  const { layout, table } = context
  const dir = layout.region(region).service
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  const file = join(dir, 'service.json')
  const wanted = JSON.stringify(serviceConfig(context, region, ports), null, 2)
  const same = existsSync(file) && readFileSync(file, 'utf8') === wanted
  const name = serviceName(region)
  const running = table.find(name)
  if (running !== null && isRunning(running)) {
    if (same) return service(layout, region, ports[region], running)
    await stopProcess(running)
  }
  await endStrays({ cwd: dir, argument: file, programs: ['node'] })
  writeFileSync(file, wanted, { mode: 0o600 })
  return service(layout, region, ports[region], await launch(context, region, dir, file))
}

function service(layout: Layout, region: SandboxRegion, port: number, process: ProcessRecord): Service {
  return { region, url: `http://127.0.0.1:${port}`, process, logFile: join(layout.region(region).service, 'service.log') }
}

export function serviceName(region: SandboxRegion): string {
  return `service-${region}`
}

async function launch(context: ServiceContext, region: SandboxRegion, dir: string, file: string): Promise<ProcessRecord> {
  const logFile = join(dir, 'service.log')
  const logStart = existsSync(logFile) ? statSync(logFile).size : 0
  const log = openSync(logFile, 'a')
  let started: ProcessRecord
  try {
    const child = spawn(process.execPath, [...program(), file], {
      cwd: dir,
      detached: true,
      stdio: ['ignore', log, log],
      env: environment(context.secrets),
    })
    child.once('error', () => undefined)
    child.unref()
    const startTime = child.pid === undefined ? null : startTimeOf(child.pid)
    if (child.pid === undefined || startTime === null)
      throw sandboxError(`the service of ${region} could not be started`, `read ${logFile}`)
    started = { name: serviceName(region), pid: child.pid, startTime, stopSignal: 'SIGTERM', graceMs: STOP_GRACE_MS }
    context.table.record(started)
  } finally {
    closeSync(log)
  }
  const said = () => readFileSync(logFile).subarray(logStart).toString('utf8')
  await waitUntil(() => readyLine(said()) !== null || !isRunning(started), START_TIMEOUT_MS)
  if (readyLine(said()) !== null && isRunning(started)) return started
  await killProcess(started)
  if (said().includes('EADDRINUSE')) throw new PortTaken()
  throw sandboxError(`the service of ${region} did not start: ${said().trim().split('\n').at(-1) || 'it said nothing'}`, `read ${logFile}`)
}

function readyLine(text: string): ServiceReady | null {
  const line = text.split('\n').find(l => l.startsWith('{') && l.includes('"ready":true'))
  return line === undefined ? null : (JSON.parse(line) as ServiceReady)
}

/** The bundle starts the bundle, the sources start the sources: never one of another age than ourselves. */
function program(): readonly string[] {
  if (!fileURLToPath(import.meta.url).endsWith('.ts')) return [packageFile('dist', 'service-process.js')]
  return ['--import', tsxLoader(), packageFile('sandbox', 'service-process.ts')]
}

/** Passwords by environment, as the service's file refers to them; the writer's, which can be rotated, it reads from its file. */
function environment(secrets: SandboxSecrets): NodeJS.ProcessEnv {
  const names = REGIONS.flatMap(region =>
    ['app_relay', 'app_inbox', 'kafka.app_service', 'kafka.app_inbox'].map(login => `${region}.${login}`),
  )
  return {
    PATH: process.env.PATH ?? '',
    ...(process.env.HOMEREGION_DEBUG === undefined ? {} : { HOMEREGION_DEBUG: process.env.HOMEREGION_DEBUG }),
    ...Object.fromEntries(names.map(name => [variable(name), secrets.read(name)])),
  }
}

function variable(secret: string): string {
  return `SANDBOX_${secret.toUpperCase().replaceAll(/[^A-Z0-9]/g, '_')}`
}

function serviceConfig({ servers, secrets }: ServiceContext, region: SandboxRegion, ports: Ports): ServiceConfig {
  const database = (role: string) => ({
    url: loginUrl(servers.regions[region].postgres, role, APP_DATABASE),
    password: { env: variable(`${region}.${role}`) },
  })
  const writer = { ...database('app_writer'), password: { file: secrets.file(`${region}.app_writer`) } }
  const stream = (of: SandboxRegion, login: string): ServiceStream => ({
    brokers: servers.regions[of].kafka.brokers,
    ssl: false,
    sasl: { mechanism: 'scram-sha-256', username: login, password: { env: variable(`${of}.kafka.${login}`) } },
    outboxTopic: outboxTopic(of),
  })
  return {
    region,
    http: { port: ports[region] },
    database: { writer, relay: database('app_relay'), inbox: database('app_inbox') },
    kafka: { ...stream(region, 'app_service'), inboxGroup: inboxGroup(region), ownershipTopic: OWNERSHIP_TOPIC },
    peers: REGIONS.filter(peer => peer !== region).map(peer => ({
      region: peer,
      url: `http://127.0.0.1:${ports[peer]}`,
      kafka: stream(peer, 'app_inbox'),
    })),
  }
}

async function choosePorts(layout: Layout, fresh: boolean): Promise<Ports> {
  const file = join(layout.dir, 'service-ports.json')
  if (!fresh && existsSync(file)) return JSON.parse(readFileSync(file, 'utf8')) as Ports
  const [a = 0, b = 0] = await freePorts(2)
  const ports: Ports = { 'region-a': a, 'region-b': b }
  writeFileSync(file, JSON.stringify(ports))
  return ports
}
