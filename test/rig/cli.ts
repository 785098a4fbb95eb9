import { type ChildProcess, spawn } from 'node:child_process'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import { ensureBundle } from './bundle.ts'
import { waitForOutput } from './wait-for-output.ts'

export type CliOptions = {
  readonly env?: Readonly<Record<string, string>>
  /** Written to stdin, which is then closed. Default: closed at once. */
  readonly stdin?: string
  readonly cwd?: string
  /** SIGKILL after this long; default 60 s. */
  readonly timeoutMs?: number
}

export type CliResult = {
  /** Exit code; null when a signal ended it. */
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

export type CliRun = {
  readonly child: ChildProcess
  readonly pid: number
  /** What it wrote so far, both streams in the order they came. */
  output(): string
  /** Resolves when the output matches. @throws when it ends, or `timeoutMs` passes, without */
  waitFor(pattern: RegExp, timeoutMs?: number): Promise<void>
  readonly done: Promise<CliResult>
}

/** Runs `bin/homeregion.js` with a bare environment: nothing of the developer's own settings reaches it. */
export function startCli(args: readonly string[], environment: Readonly<Record<string, string>>, options: CliOptions = {}): CliRun {
  ensureBundle()
  const child = spawn(process.execPath, [packageFile('bin', 'homeregion.js'), ...args], {
    cwd: options.cwd ?? packageFile(),
    env: { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '', ...environment, ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  const streams = { stdout: '', stderr: '', both: '' }
  const changed = new Set<() => void>()
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8')
    child[name].on('data', (text: string) => {
      streams[name] += text
      streams.both += text
      for (const look of changed) look()
    })
  }
  // The program may end without having read its stdin.
  child.stdin.on('error', () => undefined)
  child.stdin.end(options.stdin ?? '')
  const killer = setTimeout(() => child.kill('SIGKILL'), options.timeoutMs ?? 60_000)
  const done = new Promise<CliResult>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => {
      clearTimeout(killer)
      resolve({ code, signal, stdout: streams.stdout, stderr: streams.stderr })
    })
  })
  return {
    child,
    pid: child.pid ?? -1,
    output: () => streams.both,
    waitFor: async (pattern, timeoutMs = 30_000) => {
      const missing = () => `${pattern} was written:\n${streams.both}`
      await waitForOutput({ changed, done, matches: () => pattern.test(streams.both), missing }, timeoutMs)
    },
    done,
  }
}

export async function runCli(
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
  options: CliOptions = {},
): Promise<CliResult> {
  return await startCli(args, environment, options).done
}
