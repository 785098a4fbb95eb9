import { type ChildProcess, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { packageFile } from '../src/adapters/files/package-root.ts'
import { type ProcessRecord, type ProcessTable, startTimeOf } from './processes.ts'
import { sandboxError } from './sandbox-error.ts'
import { tsxLoader } from './tsx-loader.ts'

export type CommandEnd = {
  /** Null when a signal ended it. */
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** The real command line, each command a process of its own, with nothing of the caller's settings. */
export interface CommandLine {
  /** @throws the signal's reason when it is aborted; the command is killed then */
  run(args: readonly string[]): Promise<CommandEnd>
  /** Starts one that runs on until the sandbox is taken down. */
  background(name: string, args: readonly string[], table: ProcessTable): ProcessRecord
}

// Only a command that hangs takes this long.
const TIMEOUT_MS = 120_000

export function createCommandLine(about: {
  readonly config: string
  readonly stateDir: string
  readonly signal: AbortSignal
}): CommandLine {
  const start = (args: readonly string[], output: 'pipe' | 'ignore'): ChildProcess =>
    spawn(process.execPath, [...program(), ...args], {
      // A group of its own: Ctrl-C at the terminal reaches the caller alone, which then ends all of it in order.
      detached: true,
      stdio: ['ignore', output, output],
      env: {
        PATH: process.env.PATH ?? '',
        HOME: process.env.HOME ?? '',
        ...(process.env.TMPDIR === undefined ? {} : { TMPDIR: process.env.TMPDIR }),
        HOMEREGION_CONFIG: about.config,
        HOMEREGION_STATE_DIR: about.stateDir,
      },
    })
  return {
    run: async args =>
      await new Promise((resolve, reject) => {
        about.signal.throwIfAborted()
        const child = start(args, 'pipe')
        const [stdout, stderr]: [string[], string[]] = [[], []]
        child.stdout?.setEncoding('utf8').on('data', (text: string) => stdout.push(text))
        child.stderr?.setEncoding('utf8').on('data', (text: string) => stderr.push(text))
        const kill = () => child.kill('SIGKILL')
        const timer = setTimeout(kill, TIMEOUT_MS)
        about.signal.addEventListener('abort', kill)
        const settled = () => {
          clearTimeout(timer)
          about.signal.removeEventListener('abort', kill)
        }
        child.once('error', error => {
          settled()
          reject(error)
        })
        child.once('close', code => {
          settled()
          if (about.signal.aborted) reject(about.signal.reason as Error)
          else resolve({ code, stdout: stdout.join(''), stderr: stderr.join('') })
        })
      }),
    background: (name, args, table) => {
      const child = start(args, 'ignore')
      child.once('error', () => undefined)
      child.unref()
      const startTime = child.pid === undefined ? null : startTimeOf(child.pid)
      if (child.pid === undefined || startTime === null)
        throw sandboxError(`homeregion ${args.join(' ')} could not be started`, 'homeregion sandbox down')
      const started: ProcessRecord = { name, pid: child.pid, startTime, stopSignal: 'SIGTERM', graceMs: 3000 }
      table.record(started)
      return started
    },
  }
}

/** The bundle starts the bundle, the sources start the sources: never one of another age than ourselves. */
function program(): readonly string[] {
  if (!fileURLToPath(import.meta.url).endsWith('.ts')) return [packageFile('bin', 'homeregion.js')]
  return ['--import', tsxLoader(), packageFile('src', 'cli', 'main.ts')]
}
