import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { basename } from 'node:path'
import { sinkError } from './sink-error.ts'

export type ProgramRun = {
  readonly place: string
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  /** Given on stdin: an argument or a variable would stand in the process list. */
  readonly input: string | null
  readonly timeoutMs: number
}

export type ProgramEnd = { readonly code: number; readonly stdout: string; readonly stderr: string }

/** More than any answer needs; a program that prints on and on is ended. */
const OUTPUT_BYTES = 256 * 1024
/** What a program that has ended left running may hold its output open; it is not waited for longer. */
const CLOSE_MS = 500

/** Runs a program to its end, bounded in time and output, its whole process group ended with it. @throws `fence-failed` (`started` false: it never ran) */
export async function runProgram(run: ProgramRun): Promise<ProgramEnd> {
  const [program = '', ...args] = run.argv
  const problem = (why: string, started = true) =>
    sinkError(run.place, why, `run ${basename(program)} by hand, with a value of no worth`, { started })
  return await new Promise<ProgramEnd>((resolve, reject) => {
    // A group of its own: what the program started ends with it.
    const child = spawn(program, args, { env: run.env, stdio: ['pipe', 'pipe', 'pipe'], detached: true })
    const output = collect(child, () => fail(`it printed more than ${OUTPUT_BYTES} bytes, and was ended`))
    const timer = setTimeout(() => fail(`it did not end within ${run.timeoutMs} ms, and was ended`), run.timeoutMs)
    const release = () => {
      clearTimeout(timer)
      endGroup(child.pid)
      for (const stream of [child.stdin, child.stdout, child.stderr]) stream.destroy()
    }
    const fail = (why: string, started = true) => {
      release()
      reject(problem(why, started))
    }
    const end = (code: number | null) => {
      release()
      // Not by an error of the pipe: Node drops it when the program is gone first, and raises one also where nothing was to be read.
      const unread = run.input !== null && !child.stdin.writableFinished
      if (code === null) reject(problem('it was ended by a signal'))
      else if (unread && code === 0) reject(problem('it ended without reading its stdin'))
      else resolve({ code, ...output() })
    }
    child.once('error', (error: NodeJS.ErrnoException) =>
      fail(
        error.code === 'ENOENT' ? 'the program was not found' : `it cannot be started (${error.code ?? 'unknown reason'})`,
        child.pid !== undefined,
      ),
    )
    child.stdin.on('error', () => undefined)
    child.once('exit', code => {
      clearTimeout(timer)
      const late = setTimeout(() => end(code), CLOSE_MS)
      child.once('close', () => {
        clearTimeout(late)
        end(code)
      })
    })
    child.stdin.end(run.input ?? '')
  })
}

function collect(child: ChildProcessWithoutNullStreams, tooMuch: () => void): () => Pick<ProgramEnd, 'stdout' | 'stderr'> {
  const chunks: { stdout: Buffer[]; stderr: Buffer[] } = { stdout: [], stderr: [] }
  let size = 0
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].on('data', (chunk: Buffer) => {
      size += chunk.length
      if (size > OUTPUT_BYTES) tooMuch()
      else chunks[name].push(chunk)
    })
  }
  return () => ({ stdout: Buffer.concat(chunks.stdout).toString('utf8'), stderr: Buffer.concat(chunks.stderr).toString('utf8') })
}

function endGroup(pid: number | undefined): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // It has ended already.
  }
}
