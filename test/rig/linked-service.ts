import { spawn } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { loginUrl, type Servers } from '../../sandbox/config-text.ts'
import { freePorts } from '../../sandbox/free-ports.ts'
import { APP_DATABASE, inboxGroup, OWNERSHIP_TOPIC, outboxTopic, REGIONS, type SandboxRegion } from '../../sandbox/layout.ts'
import { isRunning, type ProcessRecord, startTimeOf } from '../../sandbox/processes.ts'
import type { Sandbox } from '../../sandbox/sandbox.ts'
import type { ServiceConfig, ServiceStream } from '../../sandbox/service-config.ts'
import { serviceName } from '../../sandbox/services.ts'
import { tsxLoader } from '../../sandbox/tsx-loader.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { packageFile } from '../../src/adapters/files/package-root.ts'

export type LinkedService = { readonly region: SandboxRegion; readonly url: string; readonly process: ProcessRecord }

/** A region's service that reads its peer's Kafka through `peerBroker`, and forwards no request to the other region. */
export async function startLinkedService(
  sandbox: Sandbox,
  servers: Servers,
  region: SandboxRegion,
  peerBroker: number,
  known?: number,
): Promise<LinkedService> {
  const { secrets } = sandbox
  const dir = sandbox.layout.region(region).service
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  const port = known ?? (await freePorts(1))[0] ?? 0
  const login = (role: string) => ({
    url: loginUrl(servers.regions[region].postgres, role, APP_DATABASE),
    password: { file: secrets.file(`${region}.${role}`) },
  })
  const stream = (of: SandboxRegion, username: string, brokers: readonly string[]): ServiceStream => {
    secrets.read(`${of}.kafka.${username}`)
    const password = { file: secrets.file(`${of}.kafka.${username}`) }
    return { brokers, ssl: false, sasl: { mechanism: 'scram-sha-256', username, password }, outboxTopic: outboxTopic(of) }
  }
  const config: ServiceConfig = {
    region,
    http: { port },
    database: { writer: login('app_writer'), relay: login('app_relay'), inbox: login('app_inbox') },
    kafka: {
      ...stream(region, 'app_service', servers.regions[region].kafka.brokers),
      inboxGroup: inboxGroup(region),
      ownershipTopic: OWNERSHIP_TOPIC,
    },
    peers: REGIONS.filter(peer => peer !== region).map(peer => ({
      region: peer,
      url: null,
      kafka: stream(peer, 'app_inbox', [`127.0.0.1:${peerBroker}`]),
    })),
  }
  const file = join(dir, 'linked-service.json')
  writeFileSync(file, JSON.stringify(config), { mode: 0o600 })
  return { region, url: `http://127.0.0.1:${port}`, process: await launch(sandbox, region, dir, file) }
}

async function launch(sandbox: Sandbox, region: SandboxRegion, dir: string, file: string): Promise<ProcessRecord> {
  const logFile = join(dir, `linked-service-${performance.now().toFixed(0)}.log`)
  const log = openSync(logFile, 'w')
  const args = ['--import', tsxLoader(), packageFile('sandbox', 'service-process.ts'), file]
  const env = { PATH: process.env['PATH'] ?? '' }
  const child = spawn(process.execPath, args, { cwd: dir, detached: true, stdio: ['ignore', log, log], env })
  closeSync(log)
  child.unref()
  const pid = child.pid ?? -1
  const startTime = startTimeOf(pid)
  if (startTime === null) throw new Error(`the service of ${region} could not be started`)
  const started: ProcessRecord = { name: serviceName(region), pid, startTime, stopSignal: 'SIGTERM', graceMs: 5000 }
  sandbox.processes.record(started)
  const said = () => readFileSync(logFile, 'utf8')
  await waitUntil(() => said().includes('"ready":true') || !isRunning(started), 90_000)
  if (!said().includes('"ready":true')) throw new Error(`the service of ${region} did not start:\n${said()}`)
  return started
}
