import { join } from 'node:path'
import { allSettled } from './all-settled.ts'
import type { RegionServers, Servers } from './config-text.ts'
import { prepareControlPlaneDatabase, prepareRegionDatabase } from './databases.ts'
import { type KafkaServer, runningKafka, startKafka } from './kafka.ts'
import { type Layout, REGIONS, type SandboxRegion } from './layout.ts'
import { portAnswers } from './port-answers.ts'
import { type PostgresServer, runningPostgres, startPostgres } from './postgres.ts'
import { isRunning, killProcess, type ProcessTable } from './processes.ts'
import type { SandboxSecrets } from './sandbox-secrets.ts'
import { endStrays } from './strays.ts'
import { KAFKA_LOGINS, prepareStreams } from './streams.ts'

export type ServersContext = {
  readonly layout: Layout
  readonly table: ProcessTable
  readonly secrets: SandboxSecrets
  readonly progress: (line: string) => void
}

// On loopback a listening process answers at once.
const ANSWER_MS = 1000

export const CONTROL_PLANE = 'control-plane'

export function postgresName(region: SandboxRegion): string {
  return `postgres-${region}`
}

export function kafkaName(region: SandboxRegion): string {
  return `kafka-${region}`
}

/** Three databases and two brokers, started side by side, with their roles, tables, topics and rights. What runs already stays. */
export async function startServers(context: ServersContext): Promise<Servers> {
  const { layout, secrets, progress } = context
  const [controlPlane, a, b] = await allSettled([
    ensurePostgres(context, CONTROL_PLANE, layout.controlPlane).then(async server => {
      await prepareControlPlaneDatabase(server.adminUrl, secrets.read('control-plane.homeregion_operator'))
      progress(`control plane     PostgreSQL on 127.0.0.1:${server.port}`)
      return server
    }),
    ...REGIONS.map(region => startRegion(context, region)),
  ] as const)
  if (a === undefined || b === undefined) throw new RangeError('the sandbox has two regions')
  return { controlPlane, regions: { 'region-a': a, 'region-b': b } }
}

/** What runs now; null when a database or a broker does not. Starts nothing. */
export async function runningServers({ layout, table }: Pick<ServersContext, 'layout' | 'table'>): Promise<Servers | null> {
  const controlPlane = runningPostgres(layout.controlPlane, table.find(CONTROL_PLANE))
  const region = async (name: SandboxRegion): Promise<RegionServers | null> => {
    const postgres = runningPostgres(layout.region(name).postgres, table.find(postgresName(name)))
    const kafka = await runningKafka(layout.region(name).kafka, table.find(kafkaName(name)))
    return postgres === null || kafka === null ? null : { postgres, kafka }
  }
  const [a, b] = await Promise.all([region('region-a'), region('region-b')])
  return controlPlane === null || a === null || b === null ? null : { controlPlane, regions: { 'region-a': a, 'region-b': b } }
}

async function startRegion(context: ServersContext, region: SandboxRegion): Promise<RegionServers> {
  const { layout, secrets, progress } = context
  const [postgres, kafka] = await allSettled([
    ensurePostgres(context, postgresName(region), layout.region(region).postgres).then(async server => {
      await prepareRegionDatabase(server.adminUrl, role => secrets.read(`${region}.${role}`))
      progress(`${region}          PostgreSQL on 127.0.0.1:${server.port}`)
      return server
    }),
    ensureKafka(context, region).then(async server => {
      await prepareStreams(region, server)
      progress(`${region}          Kafka on ${server.brokers.join(', ')}`)
      return server
    }),
  ])
  return { postgres, kafka }
}

/** The running server if there is one; what hangs or was half started is ended and started again. */
async function ensurePostgres({ table }: Pick<ServersContext, 'table'>, name: string, dir: string): Promise<PostgresServer> {
  const recorded = table.find(name)
  const running = runningPostgres(dir, recorded)
  if (running !== null && (await portAnswers(`127.0.0.1:${running.port}`, ANSWER_MS))) return running
  if (recorded !== null && isRunning(recorded)) await killProcess(recorded)
  await endPostgresStrays(dir)
  return await startPostgres({ dir, name, onStart: started => table.record(started) })
}

async function ensureKafka(
  { layout, table, secrets }: Pick<ServersContext, 'layout' | 'table' | 'secrets'>,
  region: SandboxRegion,
): Promise<KafkaServer> {
  const name = kafkaName(region)
  const dir = layout.region(region).kafka
  const recorded = table.find(name)
  const running = await runningKafka(dir, recorded)
  if (running !== null && (await portAnswers(running.brokers[0] ?? '', ANSWER_MS))) return running
  if (recorded !== null && isRunning(recorded)) await killProcess(recorded)
  await endKafkaStrays(dir)
  const users = Object.fromEntries(KAFKA_LOGINS.map(login => [login, secrets.read(`${region}.kafka.${login}`)]))
  return await startKafka({ dir, name, users, onStart: started => table.record(started) })
}

/** Ends what killed starts left running unrecorded: servers, and the programs that prepare their folders. */
export async function endServerStrays(layout: Layout): Promise<void> {
  await Promise.all([
    endPostgresStrays(layout.controlPlane),
    ...REGIONS.flatMap(region => [endPostgresStrays(layout.region(region).postgres), endKafkaStrays(layout.region(region).kafka)]),
  ])
}

async function endPostgresStrays(dir: string): Promise<void> {
  const data = join(dir, 'data')
  await endStrays({ cwd: data, argument: data, programs: ['postgres'] })
  await endStrays({ cwd: dir, argument: join(dir, 'data.new'), programs: ['initdb'] })
}

async function endKafkaStrays(dir: string): Promise<void> {
  await endStrays({ cwd: dir, argument: join(dir, 'server.properties'), programs: ['java'] })
  await endStrays({ cwd: dir, argument: `@${join(dir, 'format')}`, programs: ['java'] })
}
