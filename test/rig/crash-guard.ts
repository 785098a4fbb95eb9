import { spawn } from 'node:child_process'
import { Socket } from 'node:net'
import { tsxLoader } from '../../sandbox/tsx-loader.ts'
import { packageFile } from '../../src/adapters/files/package-root.ts'

export type CrashGuard = {
  /** The rig is down; nothing is left to guard. */
  release(): void
}

/**
 * Takes the sandbox in `dir` down when this process dies. A second process holds the other end of a pipe: the kernel closes
 * ours whatever ends us, SIGKILL included, and that wakes it.
 */
export function guardAgainstCrash(dir: string): CrashGuard {
  const guard = spawn(process.execPath, ['--import', tsxLoader(), packageFile('test', 'rig', 'take-down.ts'), dir], {
    // A group of its own: Ctrl-C in the terminal ends the tests, not what cleans up after them.
    detached: true,
    stdio: ['pipe', 'ignore', 'inherit'],
  })
  guard.stdin.on('error', () => undefined)
  // Neither the process nor the pipe keeps the tests from ending.
  if (guard.stdin instanceof Socket) guard.stdin.unref()
  guard.unref()
  return { release: () => guard.stdin.end() }
}
