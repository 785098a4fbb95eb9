import { execFile, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { freePorts } from './free-ports.ts'
import { type KafkaPorts, serverProperties } from './kafka-properties.ts'
import { type Command, type KafkaRuntime, kafkaRuntime } from './kafka-runtime.ts'
import { isRunning, killProcess, type ProcessRecord, startTimeOf, stopProcess } from './processes.ts'
import { sandboxError } from './sandbox-error.ts'
import { waitUntil } from './wait-until.ts'

const run = promisify(execFile)

export type KafkaServer = {
  /** SASL SCRAM-SHA-256. */
  readonly brokers: readonly string[]
  /** No authentication, and whoever uses it may do everything: for set-up and for tools of the sandbox. */
  readonly internalBrokers: readonly string[]
  readonly admin: { readonly username: string; readonly password: string }
  readonly dir: string
  readonly logFile: string
  readonly pid: number
  readonly process: ProcessRecord
  /** Adds a SCRAM user to a running broker, or changes the password of one: 2 s of JVM. Users known before are cheaper in `users`. */
  createUser(name: string, password: string): Promise<void>
  stop(): Promise<void>
  /** SIGKILL, as a crash. */
  kill(): Promise<void>
}

export type KafkaOptions = {
  readonly dir: string
  readonly name: string
  /** SCRAM users to have from the first start, name to password. */
  readonly users?: Readonly<Record<string, string>>
  /** Told at once, before it is ready, so that a start that is killed leaves a record of what it started. */
  readonly onStart?: (started: ProcessRecord) => void
}

// 2 s on an idle machine, each step; a busy one has needed a minute for all.
const START_TIMEOUT_MS = 120_000
const STOP_GRACE_MS = 10_000
const MOST_ATTEMPTS = 5

export async function startKafka(options: KafkaOptions): Promise<KafkaServer> {
  const dir = resolve(options.dir)
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  const runtime = await kafkaRuntime(dir, options.name)
  let attempts = 0
  for (;;) {
    const ports = await choosePorts(dir)
    writeFileSync(join(dir, 'server.properties'), serverProperties({ ports, bind: runtime.bind, dataDir: runtime.path('data') }), {
      mode: 0o600,
    })
    if (!existsSync(join(dir, 'formatted'))) await format(dir, runtime, ports, options.users ?? {})
    const end = performance.now() + START_TIMEOUT_MS
    const logStart = existsSync(logFile(dir)) ? statSync(logFile(dir)).size : 0
    const started = launch(dir, runtime, ports, options.name)
    options.onStart?.(started)
    const log = () => readFileSync(logFile(dir)).subarray(logStart).toString('utf8')
    await waitUntil(() => log().includes('Kafka Server started') || !isRunning(started), end - performance.now())
    if (isRunning(started) && log().includes('Kafka Server started')) {
      writeFileSync(join(dir, 'ports.json'), JSON.stringify({ ...ports, readyPid: started.pid }))
      return server(dir, runtime, ports, started)
    }
    await killProcess(started)
    rmSync(join(dir, 'ports.json'), { force: true })
    attempts += 1
    // A port taken in between, or the lock of a killed broker that is still ending: both pass.
    const passing = /Address already in use|lock on .*\.lock|Failed to acquire lock/i.test(log())
    if (!passing || attempts === MOST_ATTEMPTS) {
      const why = log()
        .split('\n')
        .find(l => /ERROR|Exception/.test(l))
      throw sandboxError(`Kafka in ${dir} did not start: ${why ?? `not ready within ${START_TIMEOUT_MS / 1000} s`}`, `read ${logFile(dir)}`)
    }
  }
}

/** The broker of a recorded process, null when it does not run or never became ready. */
export async function runningKafka(dir: string, started: ProcessRecord | null): Promise<KafkaServer | null> {
  if (started === null || !isRunning(started) || !existsSync(join(dir, 'ports.json'))) return null
  const ports = JSON.parse(readFileSync(join(dir, 'ports.json'), 'utf8')) as KafkaPorts & { readonly readyPid: number }
  return ports.readyPid === started.pid ? server(dir, await kafkaRuntime(dir, started.name), ports, started) : null
}

function server(dir: string, runtime: KafkaRuntime, ports: KafkaPorts, started: ProcessRecord): KafkaServer {
  return {
    brokers: [`127.0.0.1:${ports.client}`],
    internalBrokers: [`127.0.0.1:${ports.internal}`],
    admin: { username: 'admin', password: readFileSync(join(dir, 'admin.password'), 'utf8') },
    dir,
    logFile: logFile(dir),
    pid: started.pid,
    process: started,
    createUser: (name, password) => createUser(dir, runtime, ports, name, password),
    stop: () => stopProcess(started),
    kill: () => killProcess(started),
  }
}

/**
 * Formats the data folder with its SCRAM users. The arguments go through a file that only we can read, because the process
 * list shows argv to everybody; the file is removed afterwards. All names are of this attempt alone: a format that outlived
 * the start that began it must not meet this one in one folder.
 */
async function format(dir: string, runtime: KafkaRuntime, ports: KafkaPorts, users: Readonly<Record<string, string>>): Promise<void> {
  const attempt = randomBytes(4).toString('hex')
  const [draft, properties, argumentFile] = [`data.new.${attempt}`, `format.${attempt}.properties`, `format.${attempt}.args`]
  const password = randomBytes(24).toString('base64url')
  writeFileSync(join(dir, 'admin.password'), password, { mode: 0o600 })
  const logins = Object.entries({ ...users, admin: password })
  const clusterId = randomClusterId()
  const args = [
    ...['format', '--cluster-id', clusterId, '--config', runtime.path(properties)],
    ...logins.flatMap(([name, secret]) => ['--add-scram', `SCRAM-SHA-256=[name=${name},password=${secret}]`]),
  ]
  await withSecretFile(join(dir, properties), serverProperties({ ports, bind: runtime.bind, dataDir: runtime.path(draft) }), async () => {
    await withSecretFile(join(dir, argumentFile), `${args.join('\n')}\n`, async () => {
      await execute(dir, runtime.offline('kafka.tools.StorageTool', [`@${runtime.path(argumentFile)}`]), `format Kafka's folder ${dir}`)
    })
  })
  // No broker ever ran on a folder without the mark that comes last.
  rmSync(join(dir, 'data'), { recursive: true, force: true })
  renameSync(join(dir, draft), join(dir, 'data'))
  writeFileSync(join(dir, 'formatted'), clusterId)
}

/** An id that begins with "-" would be taken for an option, once in 64 times. */
export function randomClusterId(random: (bytes: number) => Buffer = randomBytes): string {
  for (;;) {
    const id = random(16).toString('base64url')
    if (!id.startsWith('-')) return id
  }
}

async function createUser(dir: string, runtime: KafkaRuntime, ports: KafkaPorts, name: string, password: string): Promise<void> {
  const file = `user-${randomBytes(4).toString('hex')}.properties`
  await withSecretFile(join(dir, file), `SCRAM-SHA-256=password=${password}\n`, () =>
    execute(
      dir,
      runtime.online('kafka.admin.ConfigCommand', [
        ...['--bootstrap-server', `127.0.0.1:${ports.internal}`, '--alter'],
        ...['--entity-type', 'users', '--entity-name', name, '--add-config-file', runtime.path(file)],
      ]),
      `create Kafka's user ${name}`,
    ),
  )
}

async function withSecretFile(file: string, text: string, work: () => Promise<void>): Promise<void> {
  writeFileSync(file, text, { mode: 0o600 })
  try {
    await work()
  } finally {
    rmSync(file, { force: true })
  }
}

async function execute(dir: string, command: Command, what: string): Promise<void> {
  try {
    await run(command.program, command.args, { cwd: dir, timeout: START_TIMEOUT_MS })
  } catch {
    // Kafka's tools repeat their arguments in errors, passwords among them: the text is not passed on.
    throw sandboxError(`${command.program} could not ${what}`, 'homeregion sandbox down, then homeregion sandbox up')
  }
}

function launch(dir: string, runtime: KafkaRuntime, ports: KafkaPorts, name: string): ProcessRecord {
  const { program, args } = runtime.broker([ports.client, ports.internal])
  const log = openSync(logFile(dir), 'a')
  try {
    // Detached: the broker outlives the CLI, and Ctrl-C in the terminal is not passed on to it.
    const child = spawn(program, args, { cwd: dir, detached: true, stdio: ['ignore', log, log] })
    child.once('error', () => undefined)
    child.unref()
    const pid = child.pid
    const startTime = pid === undefined ? null : startTimeOf(pid)
    if (pid === undefined || startTime === null) throw sandboxError(`${program} could not be started`, `read ${logFile(dir)}`)
    return { name, pid, startTime, stopSignal: 'SIGTERM', graceMs: STOP_GRACE_MS, container: runtime.container }
  } finally {
    closeSync(log)
  }
}

async function choosePorts(dir: string): Promise<KafkaPorts> {
  const file = join(dir, 'ports.json')
  if (existsSync(file)) return JSON.parse(readFileSync(file, 'utf8')) as KafkaPorts
  const [client, internal, controller] = await freePorts(3)
  if (client === undefined || internal === undefined || controller === undefined) {
    throw sandboxError('no free port was found on 127.0.0.1', 'close some programs, then try again')
  }
  return { client, internal, controller }
}

function logFile(dir: string): string {
  return join(dir, 'kafka.log')
}
