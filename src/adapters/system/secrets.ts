import { spawn } from 'node:child_process'
import { open } from 'node:fs/promises'
import { basename } from 'node:path'
import type { SecretReference } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { remember } from './redaction.ts'

export interface Secrets {
  /** The secret, from now on redacted everywhere. Read once per process. @throws `secret-unavailable`; never with the value in it */
  read(reference: SecretReference): Promise<string>
  /** Secrets were replaced where they come from: the next read of each asks there again. What was read stays redacted. */
  forget(): void
}

export type SecretLimits = { readonly timeoutMs: number; readonly sizeBytes: number }

/** A vault that needs longer would keep the operator waiting at every command; nothing that is a password is larger. */
export const SECRET_LIMITS: SecretLimits = { timeoutMs: 5_000, sizeBytes: 65_536 }

type Env = Readonly<Record<string, string | undefined>>

/** `commandEnv`: what a command that prints a secret gets of the environment. */
export function createSecrets(env: Env, limits: SecretLimits = SECRET_LIMITS, commandEnv: Env = env): Secrets {
  const known = new Map<string, Promise<string>>()
  return {
    read: async reference => {
      const id = JSON.stringify(reference)
      const reading = known.get(id) ?? obtain(reference, { env, commandEnv, limits })
      known.set(id, reading)
      try {
        return await reading
      } catch (error) {
        // Not kept: the operator may unlock the vault while a run waits at a gate.
        if (known.get(id) === reading) known.delete(id)
        throw error
      }
    },
    forget: () => known.clear(),
  }
}

type Sources = { readonly env: Env; readonly commandEnv: Env; readonly limits: SecretLimits }

async function obtain(reference: SecretReference, { env, commandEnv, limits }: Sources): Promise<string> {
  const secret =
    'env' in reference
      ? fromEnvironment(reference.env, env)
      : 'file' in reference
        ? await fromFile(reference.file, limits)
        : await fromCommand(reference.command, commandEnv, limits)
  remember(secret)
  return secret
}

function unavailable(source: string, why: string, next: string): HomeregionError {
  return new HomeregionError('secret-unavailable', { fact: `no secret from ${source}: ${why}`, state: 'Nothing was changed.', next })
}

function fromEnvironment(name: string, env: Env): string {
  const value = env[name]
  if (value !== undefined && value !== '') return value
  throw unavailable(
    `environment variable ${name}`,
    value === undefined ? 'it is not set' : 'it is empty',
    `export ${name}=…, then the same command again`,
  )
}

async function fromFile(path: string, limits: SecretLimits): Promise<string> {
  const problem = (why: string) => unavailable(`file ${path}`, why, `ls -l ${path}`)
  const handle = await open(path, 'r').catch((error: NodeJS.ErrnoException) => {
    throw problem(error.code ?? 'it cannot be read')
  })
  try {
    const stat = await handle.stat()
    // A pipe or a device could block for ever, beyond any deadline of ours.
    if (!stat.isFile()) throw problem('it is not a regular file')
    if (stat.size > limits.sizeBytes) throw problem(`it has ${stat.size} bytes, the limit is ${limits.sizeBytes}`)
    const text = (await handle.readFile('utf8')).replace(/\r?\n$/, '')
    if (text === '') throw problem('it is empty')
    return text
  } finally {
    await handle.close()
  }
}

/** First line of what the command prints. Only the program's name is ever shown: its arguments may hold a token. */
async function fromCommand(command: readonly string[], env: Env, limits: SecretLimits): Promise<string> {
  const [program = '', ...args] = command
  const problem = (why: string) => unavailable(`command ${basename(program)}`, why, 'run the command of the configuration by hand')
  return await new Promise<string>((resolve, reject) => {
    // A group of its own: what the command started holds the pipe too, and has to end with it. Its stderr could quote the secret.
    const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'ignore'], detached: true })
    const chunks: Buffer[] = []
    let size = 0
    const end = () => {
      clearTimeout(timer)
      child.stdout.destroy()
      killGroup(child.pid)
    }
    const refuse = (why: string) => {
      end()
      reject(problem(why))
    }
    const timer = setTimeout(() => refuse(`no answer within ${limits.timeoutMs} ms`), limits.timeoutMs)
    child.on('error', (error: NodeJS.ErrnoException) =>
      refuse(error.code === 'ENOENT' ? 'the program was not found' : (error.code ?? 'it cannot be started')),
    )
    child.stdout.on('data', (chunk: Buffer) => {
      size += chunk.length
      if (size > limits.sizeBytes) refuse(`it printed more than ${limits.sizeBytes} bytes`)
      else chunks.push(chunk)
    })
    child.on('close', code => {
      end()
      const [line = ''] = Buffer.concat(chunks).toString('utf8').split(/\r?\n/)
      if (code !== 0) reject(problem(`it ended with ${code ?? 'a signal'}`))
      else if (line === '') reject(problem('it printed nothing'))
      else resolve(line)
    })
  })
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended already.
  }
}
