import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { waitUntil } from './wait-until.ts'

/**
 * A process that the sandbox started. The pid alone would not do: after a reboot or a long day it may be somebody else's, so
 * the start time goes with it and a process is ours only while both agree.
 */
export type StartedProcess = {
  readonly name: string
  readonly pid: number
  /** Opaque: clock ticks since boot on Linux, `ps`'s date elsewhere. */
  readonly startTime: string
}

/** What is needed to end a process in the right way, also by another CLI than the one that started it. */
export type ProcessRecord = StartedProcess & {
  /** Asked first. PostgreSQL: SIGINT is its fast shutdown. */
  readonly stopSignal: NodeJS.Signals
  /** How long it may take to end by itself before SIGKILL. */
  readonly graceMs: number
  /** Container that the process is the client of; killing the client alone would leave it running. */
  readonly container?: string | null
}

/** Start time of a live process, null when there is none (a zombie counts as none: it can neither write nor listen). */
export function startTimeOf(pid: number): string | null {
  if (process.platform === 'linux') return linuxStartTime(pid)
  try {
    return (
      execFileSync('ps', ['-o', 'lstart=', '-p', String(pid)], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim() || null
    )
  } catch {
    return null
  }
}

function linuxStartTime(pid: number): string | null {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    return null
  }
  // The command's name may hold spaces and brackets; the fields that follow its last bracket do not.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields[0] === 'Z' || fields[0] === 'X' ? null : (fields[19] ?? null)
}

export function isRunning(started: StartedProcess): boolean {
  return startTimeOf(started.pid) === started.startTime
}

/** Sends a signal to the process if it is still ours; false when it is gone. */
export function signal(started: StartedProcess, name: NodeJS.Signals): boolean {
  if (!isRunning(started)) return false
  try {
    process.kill(started.pid, name)
    return true
  } catch {
    return false
  }
}

/** Asks the process to end, insists after its grace, and returns when it is gone. */
export async function stopProcess(record: ProcessRecord): Promise<void> {
  if (!signal(record, record.stopSignal)) return
  // A stopped (SIGSTOP) process takes no other signal until it goes on.
  signal(record, 'SIGCONT')
  if (await waitUntil(() => !isRunning(record), record.graceMs)) return
  await killProcess(record)
}

export async function killProcess(started: StartedProcess & { readonly container?: string | null }): Promise<void> {
  const container = started.container ?? null
  if (container !== null) killContainer(container)
  if (!signal(started, 'SIGKILL')) return
  await waitUntil(() => !isRunning(started), 10_000)
}

function killContainer(name: string): void {
  try {
    execFileSync('docker', ['kill', name], { stdio: 'ignore', timeout: 10_000 })
  } catch {
    // Gone already, which is what was wanted.
  }
}

/** The sandbox's processes on disk, one small file each, so that two starts at once never overwrite each other's record. */
export interface ProcessTable {
  record(process: ProcessRecord): void
  forget(name: string): void
  /** All that were recorded, running or not. */
  list(): readonly ProcessRecord[]
  find(name: string): ProcessRecord | null
}

export function createProcessTable(dir: string): ProcessTable {
  const file = (name: string) => join(dir, `${name}.json`)
  const read = (name: string): ProcessRecord | null => {
    try {
      return JSON.parse(readFileSync(file(name), 'utf8')) as ProcessRecord
    } catch {
      return null
    }
  }
  return {
    record(started) {
      mkdirSync(dir, { recursive: true, mode: 0o700 })
      const draft = `${file(started.name)}.${process.pid}.tmp`
      writeFileSync(draft, JSON.stringify(started))
      // Renamed into place: a kill in between leaves the old record or the new one, never half a file.
      renameSync(draft, file(started.name))
    },
    forget: name => rmSync(file(name), { force: true }),
    find: read,
    list: () =>
      names(dir)
        .map(read)
        .filter(r => r !== null),
  }
}

function names(dir: string): readonly string[] {
  try {
    return readdirSync(dir)
      .filter(f => f.endsWith('.json'))
      .map(f => f.slice(0, -'.json'.length))
  } catch {
    return []
  }
}
