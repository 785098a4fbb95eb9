import { spawn } from 'node:child_process'
import { stripVTControlCharacters } from 'node:util'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import { ensureBundle } from './bundle.ts'
import { waitForOutput } from './wait-for-output.ts'

export interface TerminalRun {
  /** What stands on the screen and above it, without colours and the cursor's ways. */
  screen(): string
  /** Resolves when the screen matches from what was typed last on. @throws when it ends, or `timeoutMs` passes, without */
  sees(pattern: RegExp, timeoutMs?: number): Promise<void>
  /** As from the keyboard, with Return. */
  types(line: string): void
  /** Ctrl-C, as the terminal sends it. */
  interrupts(): void
  /** As when the window is closed, or the connection to the host is lost. */
  hangsUp(): void
  readonly done: Promise<number | null>
}

/** Runs the command line at a real terminal of 80 columns: script(1) of util-linux makes one. */
export function startAtTerminal(args: readonly string[], environment: Readonly<Record<string, string>>): TerminalRun {
  ensureBundle()
  const command = [process.execPath, packageFile('bin', 'homeregion.js'), ...args].map(quoted).join(' ')
  const child = spawn('script', ['-qfec', `stty cols 80 rows 50; exec ${command}`, '/dev/null'], {
    env: { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '', TERM: 'xterm', ...environment },
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  let text = ''
  let from = 0
  const changed = new Set<() => void>()
  child.stdout.setEncoding('utf8')
  child.stdout.on('data', (data: string) => {
    text += data
    for (const look of changed) look()
  })
  child.stdin.on('error', () => undefined)
  const killer = setTimeout(() => child.kill('SIGKILL'), 120_000)
  const done = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', code => {
      clearTimeout(killer)
      resolve(code)
    })
  })
  const send = (keys: string) => {
    from = text.length
    child.stdin.write(keys)
  }
  return {
    screen: () => shown(text),
    sees: async (pattern, timeoutMs = 60_000) => {
      const matches = () => pattern.test(shown(text.slice(from)))
      await waitForOutput({ changed, done, matches, missing: () => `${pattern} stood there:\n${shown(text)}` }, timeoutMs)
    },
    types: line => send(`${line}\r`),
    interrupts: () => send('\u0003'),
    hangsUp: () => void child.kill('SIGKILL'),
    done,
  }
}

function shown(text: string): string {
  return stripVTControlCharacters(text).replaceAll('\r', '')
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`
}
