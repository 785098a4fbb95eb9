import { spawn } from 'node:child_process'
import { HomeregionError } from '../../domain/errors.ts'
import type { Hooks } from '../../domain/ports.ts'
import { redact } from '../system/redaction.ts'

/** What is kept of a command's output: enough to read the reason, however much it prints. */
const OUTPUT_LIMIT = 16 * 1024
/** What a command that has ended left running may hold its output open; it is not waited for longer. */
const CLOSE_MS = 500

/** Commands get argv and environment, never a shell string; what they print is cut and redacted, and they end at their deadline. */
export function createHooks(env: Readonly<Record<string, string | undefined>>): Hooks {
  return {
    run: (command, environment, timeoutMs) => runCommand(command, { ...env, ...environment }, timeoutMs),
    request: async (method, url, body, timeoutMs) => {
      try {
        const answer = await fetch(url, {
          method,
          signal: AbortSignal.timeout(timeoutMs),
          redirect: 'error',
          ...(method === 'GET' ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
        })
        await answer.body?.cancel()
        return { status: answer.status }
      } catch (error) {
        throw new HomeregionError(
          'check-refused',
          { fact: `${method} ${new URL(url).origin} did not answer: ${error instanceof Error ? error.message : String(error)}` },
          { cause: error },
        )
      }
    },
  }
}

function runCommand(command: readonly string[], env: NodeJS.ProcessEnv, timeoutMs: number): Promise<{ code: number; output: string }> {
  const [file, ...args] = command
  if (file === undefined) throw new HomeregionError('runbook-invalid', { fact: 'a command needs at least a program' })
  return new Promise((resolve, reject) => {
    // A group of its own, so that what the command has started ends with it.
    const child = spawn(file, args, { env, stdio: ['ignore', 'pipe', 'pipe'], detached: true })
    let output = ''
    let late = false
    const keep = (chunk: Buffer) => {
      output = (output + chunk.toString('utf8')).slice(-OUTPUT_LIMIT)
    }
    child.stdout.on('data', keep)
    child.stderr.on('data', keep)
    const end = () => {
      endGroup(child.pid)
      // What left the group holds the pipe for as long as it likes; it is not waited for.
      child.stdout.destroy()
      child.stderr.destroy()
    }
    let timer = setTimeout(() => {
      late = true
      end()
    }, timeoutMs)
    child.on('error', error => {
      clearTimeout(timer)
      reject(new HomeregionError('check-refused', { fact: `${file} could not be started: ${error.message}` }, { cause: error }))
    })
    // From here its exit code counts, whoever still holds the pipes. `close` follows when they are closed.
    child.on('exit', () => {
      clearTimeout(timer)
      timer = setTimeout(end, CLOSE_MS)
    })
    child.on('close', code => {
      clearTimeout(timer)
      resolve({ code: late || code === null ? 124 : code, output: redact(late ? `${output}\n(ended after ${timeoutMs} ms)` : output) })
    })
  })
}

function endGroup(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // It ended by itself in the meantime.
  }
}
