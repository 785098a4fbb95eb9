import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { isRunning, type StartedProcess, startTimeOf } from './processes.ts'
import { sandboxError } from './sandbox-error.ts'

/** Runs `work` while nobody else starts or stops this sandbox. A lock whose holder is dead is taken over. */
export async function withUpLock<T>(file: string, work: () => Promise<T>): Promise<T> {
  take(file)
  try {
    return await work()
  } finally {
    rmSync(file, { force: true })
  }
}

function take(file: string): void {
  const self: StartedProcess = { name: 'homeregion sandbox', pid: process.pid, startTime: startTimeOf(process.pid) ?? '' }
  for (let attempt = 1; attempt <= 3; attempt++) {
    try {
      writeFileSync(file, JSON.stringify(self), { flag: 'wx', mode: 0o600 })
      return
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
    const holder = read(file)
    if (holder !== null && isRunning(holder)) {
      throw sandboxError(
        `another homeregion (process ${holder.pid}) is starting or stopping this sandbox`,
        'wait until it is done, then try again',
      )
    }
    rmSync(file, { force: true })
  }
}

function read(file: string): StartedProcess | null {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as StartedProcess
  } catch {
    return null
  }
}
