import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { tsxLoader } from '../../sandbox/tsx-loader.ts'
import { createFaultPoint } from '../../src/adapters/system/fault-point.ts'
import type { Config } from '../../src/domain/config.ts'
import type { FenceNote, FenceNotes } from '../../src/domain/fence.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { createFence } from './kafka-fence-fixture.ts'

// The fence in a process of its own, for tests that kill it between two calls.
const HERE = fileURLToPath(import.meta.url)

type Job = { readonly verb: 'apply' | 'lift'; readonly config: Config; readonly notes: string }

/** Ends with `killed` when the process met its fault point, `done` when it came to the end; `points` it passed, with `fault` "count". */
export async function runFence(
  job: Job,
  fault: string,
): Promise<{ readonly ended: 'killed' | 'done' | 'failed'; readonly points: readonly string[] }> {
  const child = spawn(process.execPath, ['--import', tsxLoader(), HERE], {
    env: { ...process.env, FENCE_JOB: JSON.stringify(job), HOMEREGION_FAULT: fault },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const said: Buffer[] = []
  child.stderr.on('data', (chunk: Buffer) => said.push(chunk))
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null]
  const text = Buffer.concat(said).toString('utf8')
  return {
    ended: signal === 'SIGKILL' ? 'killed' : code === 0 ? 'done' : 'failed',
    points: [...text.matchAll(/^fault-point \d+ (\S+)$/gm)].map(m => m[1] ?? ''),
  }
}

export function notesInFile(file: string): FenceNotes {
  return {
    read: () => Promise.resolve(existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as FenceNote) : null),
    write: note => {
      if (note === null) rmSync(file, { force: true })
      else writeFileSync(file, JSON.stringify(note))
      return Promise.resolve()
    },
  }
}

if (process.argv[1] === HERE) {
  const { verb, config, notes } = JSON.parse(process.env['FENCE_JOB'] ?? '') as Job
  const fence = createFence(config, notesInFile(notes), createFaultPoint(process.env['HOMEREGION_FAULT']))
  const cause = { reason: 'test', by: 'test', runId: null }
  if (verb === 'apply') await fence.apply(cause)
  else await liftStanding(fence, cause)
  await fence.close()
}
