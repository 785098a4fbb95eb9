import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parse, stringify } from 'yaml'
import { REGIONS, type SandboxRegion } from '../../sandbox/layout.ts'
import { startPostgres } from '../../sandbox/postgres.ts'
import { killProcess } from '../../sandbox/processes.ts'
import { kafkaName, postgresName } from '../../sandbox/servers.ts'
import { serviceName } from '../../sandbox/services.ts'
import type { CliOptions, CliResult, CliRun } from './cli.ts'
import { type CuttingProxy, startCuttingProxy } from './cutting-proxy.ts'
import { withFarListener } from './far-listener.ts'
import { type LinkedService, startLinkedService } from './linked-service.ts'
import { type Rig, startRig } from './rig.ts'

export type LinkedConfig = {
  controlPlane: { url: string; password: unknown }
  policy: Record<string, unknown>
  regions: Record<string, { fences: unknown[]; lease?: unknown; kafka: { brokers: string[] } }>
}

/**
 * Two regions with one link between them that can be cut, each direction alone. Everything that one region asks of the other goes over it: the
 * inboxes' reads, and whatever the command line and the agents ask of region-a, since they stand in region-b. The control plane is in a third place
 * that both reach.
 */
export interface LinkedRegions {
  readonly rig: Rig
  readonly dir: string
  readonly services: Readonly<Record<SandboxRegion, LinkedService>>
  /** Nothing that leaves this region arrives in the other. */
  cut(from: SandboxRegion): void
  /** What was held arrives. */
  heal(): void
  /** Writes a configuration as seen from region-b; commands use the newest one. */
  configure(change: (config: LinkedConfig, dir: string) => void, name?: string): string
  cli(args: readonly string[], options?: CliOptions & { readonly config?: string }): Promise<CliResult>
  startCli(args: readonly string[], options?: CliOptions): CliRun
  /** PostgreSQL, Kafka and the service of a region, with SIGKILL. */
  kill(region: SandboxRegion): Promise<void>
  /** Starts them again on what their disks hold. */
  revive(region: SandboxRegion): Promise<void>
  stop(): Promise<void>
}

export async function startLinkedRegions(): Promise<LinkedRegions> {
  const rig = await startRig({ services: false })
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-linked-'))
  const { sandbox, running } = rig
  const proxies: { readonly of: SandboxRegion; readonly proxy: CuttingProxy }[] = []
  const far = new Map<SandboxRegion, number>()
  const proxied = async (of: SandboxRegion, target: () => number) => {
    const proxy = await startCuttingProxy(target)
    proxies.push({ of, proxy })
    return proxy.port
  }
  const portOf = (region: SandboxRegion) => Number(new URL(running.regions[region].postgres.adminUrl).port)
  const database = await proxied('region-a', () => portOf('region-a'))
  const kafka = {
    'region-a': await proxied('region-a', () => far.get('region-a') ?? 0),
    'region-b': await proxied('region-b', () => far.get('region-b') ?? 0),
  }
  const broker = async (region: SandboxRegion) =>
    void far.set(
      region,
      await withFarListener({
        ...{ dir: sandbox.layout.region(region).kafka, name: kafkaName(region) },
        ...{ advertised: kafka[region], table: sandbox.processes },
      }),
    )
  const service = async (region: SandboxRegion, port?: number) =>
    await startLinkedService(sandbox, running, region, kafka[region === 'region-a' ? 'region-b' : 'region-a'], port)

  let config = ''
  let services: Record<SandboxRegion, LinkedService>
  const closeAll = async () => {
    for (const { proxy } of proxies) await proxy.stop()
    await rig.stop()
    rmSync(dir, { recursive: true, force: true })
  }
  try {
    await Promise.all(REGIONS.map(broker))
    const [a, b] = await Promise.all([service('region-a'), service('region-b')])
    services = { 'region-a': a, 'region-b': b }
  } catch (error) {
    await closeAll()
    throw error
  }

  return {
    rig,
    dir,
    get services() {
      return services
    },
    cut: from => {
      for (const { of, proxy } of proxies) proxy.cut(of === from ? 'back' : 'there')
    },
    heal: () => {
      for (const { proxy } of proxies) proxy.heal()
    },
    configure: (change, name = 'homeregion') => {
      const text = readFileSync(rig.config, 'utf8').replaceAll(`127.0.0.1:${portOf('region-a')}/`, `127.0.0.1:${database}/`)
      const written = parse(text) as LinkedConfig
      const [a] = [written.regions['region-a']]
      if (a !== undefined) a.kafka.brokers = [`127.0.0.1:${kafka['region-a']}`]
      change(written, dir)
      const path = join(dir, `${name}.yaml`)
      writeFileSync(path, stringify(written, { aliasDuplicateObjects: false }))
      if (name === 'homeregion') config = path
      return path
    },
    cli: async (args, { config: other, ...options } = {}) =>
      await rig.cli(['--config', other ?? config, ...args], { timeoutMs: 120_000, ...options }),
    startCli: (args, options = {}) => rig.startCli(['--config', config, ...args], { timeoutMs: 300_000, ...options }),
    kill: async region => {
      const names = [postgresName(region), kafkaName(region), serviceName(region)]
      await Promise.all(sandbox.processes.list().flatMap(p => (names.includes(p.name) ? [killProcess(p)] : [])))
    },
    revive: async region => {
      const at = sandbox.layout.region(region)
      await Promise.all([
        startPostgres({ dir: at.postgres, name: postgresName(region), onStart: started => sandbox.processes.record(started) }),
        broker(region),
      ])
      services = { ...services, [region]: await service(region, Number(new URL(services[region].url).port)) }
    },
    stop: closeAll,
  }
}
