import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chownSync, closeSync, existsSync, mkdirSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { freePorts } from './free-ports.ts'
import { type PostgresVersion, postgresBinaries } from './postgres-binaries.ts'
import { isRunning, killProcess, type ProcessRecord, startTimeOf, stopProcess } from './processes.ts'
import { sandboxError } from './sandbox-error.ts'
import { openWay, type UnprivilegedUser, unprivilegedUser } from './unprivileged-user.ts'
import { waitUntil } from './wait-until.ts'

export type PostgresServer = {
  readonly port: number
  /** Superuser login with its password: for set-up only, never for output. */
  readonly adminUrl: string
  /** The superuser's password. */
  readonly passwordFile: string
  readonly dir: string
  readonly logFile: string
  readonly pid: number
  readonly process: ProcessRecord
  /** Fast shutdown: ends sessions, then checkpoints. The data stays; `startPostgres` with the same folder goes on with it. */
  stop(): Promise<void>
  /** SIGKILL, as a crash. */
  kill(): Promise<void>
}

export type PostgresOptions = {
  /** Folder of the cluster; made when missing, gone on with when present. */
  readonly dir: string
  readonly version?: PostgresVersion
  /** Taken as it is; otherwise the port of last time if that is free, else a free one. */
  readonly port?: number
  /** Name in the process record. */
  readonly name?: string
  /** Told at once, before it is ready, so that a start that is killed leaves a record of what it started. */
  readonly onStart?: (started: ProcessRecord) => void
}

// Durability is part of what is tested, so fsync stays on; the rest keeps a small machine small and quiet.
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  password_encryption: 'scram-sha-256',
  max_connections: '200',
  max_prepared_transactions: '20',
  wal_level: 'logical',
  fsync: 'on',
  shared_buffers: '64MB',
  max_wal_size: '256MB',
  min_wal_size: '32MB',
  autovacuum_naptime: '15s',
  log_connections: 'off',
  log_checkpoints: 'off',
  timezone: 'UTC',
  log_timezone: 'UTC',
} as const

// 0.2 s on an idle machine, and recovery after a kill may be long.
const START_TIMEOUT_MS = 90_000
const STOP_GRACE_MS = 10_000
const SAME_PORT_MS = 5_000
const RETRY_MS = 50

export async function startPostgres(options: PostgresOptions): Promise<PostgresServer> {
  const dir = resolve(options.dir)
  const user = unprivilegedUser()
  const bin = postgresBinaries(options.version ?? 18, user)
  makeFolder(dir, user)
  if (!existsSync(join(dir, 'data', 'PG_VERSION'))) await initialise(dir, bin, user)
  const name = options.name ?? 'postgres'
  const began = performance.now()
  const end = began + START_TIMEOUT_MS
  for (;;) {
    const port = options.port ?? (await choosePort(dir))
    const started = await launch({ dir, bin, user, port, name })
    if (typeof started === 'string') {
      // What a killed start left behind may still be going away; a program that cannot run at all will not run later either.
      if (performance.now() - began > SAME_PORT_MS)
        throw sandboxError(`${join(bin, 'postgres')} could not be started: ${started}`, `read ${logFile(dir)}`)
      await wait(RETRY_MS)
      continue
    }
    options.onStart?.(started)
    const outcome = await settle(dir, started, end - performance.now())
    if (outcome === 'ready') {
      writeFileSync(join(dir, 'port'), String(port))
      return server(dir, port, started)
    }
    await killProcess(started)
    if (outcome !== 'passing' || performance.now() > end) {
      throw sandboxError(`PostgreSQL in ${dir} did not start: ${lastLine(logFile(dir))}`, `read ${logFile(dir)}`)
    }
    // Backends of a killed server hold its port and memory until they notice, which passes; a stranger on the port does not.
    if (performance.now() - began > SAME_PORT_MS) rmSync(join(dir, 'port'), { force: true })
    else await wait(RETRY_MS)
  }
}

/** The server of a recorded process, null when it does not run or never became ready. */
export function runningPostgres(dir: string, started: ProcessRecord | null): PostgresServer | null {
  if (started === null || !isRunning(started) || !isReady(dir, started)) return null
  const port = Number(pidFile(dir)[3])
  return Number.isInteger(port) && port > 0 ? server(dir, port, started) : null
}

function server(dir: string, port: number, started: ProcessRecord): PostgresServer {
  const passwordFile = join(dir, 'superuser.password')
  const password = readFileSync(passwordFile, 'utf8')
  return {
    port,
    passwordFile,
    adminUrl: `postgres://postgres:${password}@127.0.0.1:${port}/postgres`,
    dir,
    logFile: logFile(dir),
    pid: started.pid,
    process: started,
    stop: () => stopProcess(started),
    kill: () => killProcess(started),
  }
}

function makeFolder(dir: string, user: UnprivilegedUser | null): void {
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  if (user === null) return
  openWay(dir, user)
  chownSync(dir, user.uid, user.gid)
}

async function initialise(dir: string, bin: string, user: UnprivilegedUser | null): Promise<void> {
  const data = join(dir, 'data')
  // What a killed start left behind has no PG_VERSION or no password beside it, and holds nothing.
  rmSync(data, { recursive: true, force: true })
  const password = randomBytes(24).toString('base64url')
  const passwordFile = join(dir, 'superuser.password')
  writeFileSync(passwordFile, password, { mode: 0o600 })
  if (user !== null) chownSync(passwordFile, user.uid, user.gid)
  // A name of its own: an initdb that outlived the start that began it must not meet this one in one folder.
  const draft = join(dir, `data.new.${randomBytes(4).toString('hex')}`)
  await runInitdb(
    bin,
    ['-D', draft, '-U', 'postgres', '-A', 'scram-sha-256', `--pwfile=${passwordFile}`, '-E', 'UTF8', '--no-locale', '--no-sync'],
    { dir, user },
  )
  writeFileSync(
    join(draft, 'postgresql.auto.conf'),
    Object.entries(SETTINGS)
      .map(([key, value]) => `${key} = '${value}'\n`)
      .join(''),
  )
  writeFileSync(join(draft, 'pg_hba.conf'), 'host all all 127.0.0.1/32 scram-sha-256\n')
  // Renamed last: a folder named `data` is always a complete cluster.
  renameSync(draft, data)
}

async function runInitdb(bin: string, args: readonly string[], at: { dir: string; user: UnprivilegedUser | null }): Promise<void> {
  const log = openSync(logFile(at.dir), 'a')
  try {
    const code = await new Promise<number | null>((done, failed) => {
      const child = spawn(join(bin, 'initdb'), args, { cwd: at.dir, stdio: ['ignore', log, log], env: environment(), ...identity(at.user) })
      child.once('error', failed)
      child.once('exit', done)
    })
    if (code !== 0) throw sandboxError(`initdb in ${at.dir} failed: ${lastLine(logFile(at.dir))}`, `read ${logFile(at.dir)}`)
  } finally {
    closeSync(log)
  }
}

type Launch = { dir: string; bin: string; user: UnprivilegedUser | null; port: number; name: string }

/** The process, or why there is none. */
async function launch({ dir, bin, user, port, name }: Launch): Promise<ProcessRecord | string> {
  const log = openSync(logFile(dir), 'a')
  try {
    // Detached: the server outlives the CLI, and Ctrl-C in the terminal is not passed on to it.
    const child = spawn(join(bin, 'postgres'), ['-D', join(dir, 'data'), '-p', String(port)], {
      cwd: dir,
      detached: true,
      stdio: ['ignore', log, log],
      env: environment(),
      ...identity(user),
    })
    // Read at once: a process that has ended and was waited for has no start time any more.
    const startTime = child.pid === undefined ? null : startTimeOf(child.pid)
    const failed = await new Promise<Error | null>(done => {
      child.once('error', done)
      child.once('spawn', () => done(null))
    })
    child.unref()
    if (failed !== null) return failed.message
    if (child.pid === undefined || startTime === null) return 'it ended at once'
    return { name, pid: child.pid, startTime, stopSignal: 'SIGINT', graceMs: STOP_GRACE_MS }
  } finally {
    closeSync(log)
  }
}

/** `passing`: it ended for a reason that goes away. */
async function settle(dir: string, started: ProcessRecord, timeoutMs: number): Promise<'ready' | 'passing' | 'failed'> {
  const ready = () => isReady(dir, started)
  await waitUntil(() => ready() || !isRunning(started), timeoutMs)
  if (ready() && isRunning(started)) return 'ready'
  return portTaken(dir) || /pre-existing shared memory block|lock file "postmaster.pid" already exists/.test(tail(dir))
    ? 'passing'
    : 'failed'
}

function isReady(dir: string, started: ProcessRecord): boolean {
  const lines = pidFile(dir)
  return lines[0] === String(started.pid) && lines[7]?.trim() === 'ready'
}

/** Line 1 is the pid, line 4 the port, line 8 the status. */
function pidFile(dir: string): readonly string[] {
  try {
    return readFileSync(join(dir, 'data', 'postmaster.pid'), 'utf8').split('\n')
  } catch {
    return []
  }
}

/** The port of last time keeps written configuration files true; a clash with a stranger shows in `settle`. */
async function choosePort(dir: string): Promise<number> {
  const file = join(dir, 'port')
  if (existsSync(file)) return Number(readFileSync(file, 'utf8'))
  const [port] = await freePorts(1)
  if (port === undefined) throw sandboxError('no free port was found on 127.0.0.1', 'close some programs, then try again')
  return port
}

function identity(user: UnprivilegedUser | null): { uid?: number; gid?: number } {
  return user === null ? {} : { uid: user.uid, gid: user.gid }
}

/** Nothing of the caller's environment: PGOPTIONS, PGDATA or a locale would change the server under test. */
function environment(): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH ?? '', LC_ALL: 'C' }
}

function logFile(dir: string): string {
  return join(dir, 'postgres.log')
}

function portTaken(dir: string): boolean {
  return /could not bind .*Address already in use/.test(tail(dir))
}

/** Log of the last start only. */
function tail(dir: string): string {
  const text = readFileSync(logFile(dir), 'utf8').slice(-4000)
  return text.slice(Math.max(0, text.lastIndexOf('starting PostgreSQL')))
}

function lastLine(file: string): string {
  const lines = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []
  return lines.filter(l => /FATAL|PANIC|error/i.test(l)).at(-1) ?? lines.at(-1) ?? 'its log is empty'
}
