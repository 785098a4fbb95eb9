import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { packageFile } from '../src/adapters/files/package-root.ts'
import { cacheFolder } from './cache-folder.ts'
import { sandboxError } from './sandbox-error.ts'

const run = promisify(execFile)

/** Same version as sandbox/kafka/pom.xml. */
const KAFKA_VERSION = '4.3.1'

// Measured: a broker with these takes 0.18 GB and is ready in 1-2 s on two cores.
const JVM_FLAGS = [
  '-XX:+UseSerialGC',
  '-XX:TieredStopAtLevel=1',
  '-XX:MaxMetaspaceSize=192m',
  '-XX:ReservedCodeCacheSize=64m',
  '-XX:MaxDirectMemorySize=128m',
  '-Xmx256m',
  // A log that can be read: warnings with their time, and the line that says the broker is ready.
  '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn',
  '-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info',
  '-Dorg.slf4j.simpleLogger.showDateTime=true',
  '-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS',
]

export type Command = { readonly program: string; readonly args: readonly string[] }

/** A way to run Kafka's own programs on the folder of one broker. */
export interface KafkaRuntime {
  /** Address the broker listens on; clients always use 127.0.0.1. */
  readonly bind: string
  /** Container that the broker runs in, null for a process of our own. */
  readonly container: string | null
  /** The path of a file of `dir` as the programs see it. */
  path(...parts: readonly string[]): string
  /** The broker itself; `ports` are published where that is needed. */
  broker(ports: readonly number[]): Command
  /** A program that needs no network: format. */
  offline(mainClass: string, args: readonly string[]): Command
  /** A program that talks to the running broker. */
  online(mainClass: string, args: readonly string[]): Command
}

/** Java with Maven's jars where there is Java, else a container engine. */
export async function kafkaRuntime(dir: string, name: string): Promise<KafkaRuntime> {
  const java = await javaProblem()
  if (java === null) return javaRuntime(dir, await kafkaJars())
  if (await dockerAnswers()) return dockerRuntime(dir, name)
  throw sandboxError(`${java}, and no container engine answers`, 'install a Java runtime 17 or newer and Maven, or start Docker')
}

async function javaProblem(): Promise<string | null> {
  const version = await run('java', ['-version'], { timeout: 10_000 }).then(
    out => out.stderr,
    () => null,
  )
  if (version === null) return 'Kafka needs Java 17, and `java` was not found'
  const major = Number(/version "(\d+)/.exec(version)?.[1] ?? 0)
  if (major < 17) return `Kafka needs Java 17, and \`java\` is ${major}`
  if (existsSync(jarFolder()) || (await answers('mvn', ['-version']))) return null
  return 'Kafka is fetched with Maven, and `mvn` was not found'
}

const dockerAnswers = () => answers('docker', ['version'])

async function answers(program: string, args: readonly string[]): Promise<boolean> {
  return await run(program, args, { timeout: 15_000 }).then(
    () => true,
    () => false,
  )
}

function jarFolder(): string {
  return join(cacheFolder(), `kafka-${KAFKA_VERSION}`)
}

let fetching: Promise<string> | undefined

/** Kafka's jars, downloaded once per user. Two brokers that start together wait for one download. */
function kafkaJars(): Promise<string> {
  fetching ??= fetchJars().finally(() => {
    fetching = undefined
  })
  return fetching
}

async function fetchJars(): Promise<string> {
  const folder = jarFolder()
  if (existsSync(folder)) return folder
  const draft = `${folder}.${process.pid}.tmp`
  mkdirSync(dirname(folder), { recursive: true })
  const pom = packageFile('sandbox', 'kafka', 'pom.xml')
  const args = ['-q', '-B', '-f', pom, 'dependency:copy-dependencies', `-DoutputDirectory=${draft}`, '-DincludeScope=runtime']
  try {
    // 54 MB: 10 s from a near mirror, minutes over a slow line.
    await run('mvn', args, { timeout: 600_000, maxBuffer: 16 * 1024 * 1024 })
    // Renamed when complete: an interrupted download is never taken for Kafka.
    renameSync(draft, folder)
  } catch (cause) {
    if (existsSync(folder)) return folder
    const said = String((cause as { stdout?: string }).stdout ?? '').split('\n')
    const why = said
      .find(l => l.includes('ERROR'))
      ?.replace(/\s+/g, ' ')
      .slice(0, 300)
    throw sandboxError(
      `Maven could not download Kafka ${KAFKA_VERSION}: ${why ?? 'it said nothing'}`,
      `check the network and Maven's settings, then try: mvn -f ${pom} dependency:resolve`,
      cause,
    )
  } finally {
    rmSync(draft, { recursive: true, force: true })
  }
  return folder
}

function javaRuntime(dir: string, jars: string): KafkaRuntime {
  const java = (mainClass: string, args: readonly string[]): Command => ({
    program: 'java',
    args: [...JVM_FLAGS, '-cp', join(jars, '*'), mainClass, ...args],
  })
  const path = (...parts: readonly string[]) => join(dir, ...parts)
  return {
    bind: '127.0.0.1',
    container: null,
    path,
    broker: () => java('kafka.Kafka', [path('server.properties')]),
    offline: java,
    online: java,
  }
}

/** The container runs as ourselves on the same folder, so both runtimes leave the same files behind. */
function dockerRuntime(dir: string, container: string): KafkaRuntime {
  const image = `apache/kafka:${KAFKA_VERSION}`
  const program = 'docker'
  const user = `${process.getuid?.() ?? 1000}:${process.getgid?.() ?? 1000}`
  const path = (...parts: readonly string[]) => ['/sandbox', ...parts].join('/')
  const java = (mainClass: string, args: readonly string[]) => ['/opt/kafka/bin/kafka-run-class.sh', mainClass, ...args]
  const environment = [
    'LOG_DIR=/tmp',
    'KAFKA_HEAP_OPTS=-Xmx256m',
    'KAFKA_LOG4J_OPTS=-Dlog4j2.configurationFile=/opt/kafka/config/log4j2.yaml',
  ]
  const settings = ['--rm', '--user', user, '-v', `${dir}:/sandbox`, ...environment.flatMap(e => ['-e', e])]
  return {
    bind: '0.0.0.0',
    container,
    path,
    broker: ports => ({
      program,
      args: [
        ...['run', '--name', container, ...settings],
        ...ports.flatMap(p => ['-p', `127.0.0.1:${p}:${p}`]),
        ...[image, ...java('kafka.Kafka', [path('server.properties')])],
      ],
    }),
    offline: (mainClass, args) => ({ program, args: ['run', ...settings, image, ...java(mainClass, args)] }),
    online: (mainClass, args) => ({ program, args: ['exec', container, ...java(mainClass, args)] }),
  }
}
