import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { basename } from 'node:path'
import { killProcess, startTimeOf } from './processes.ts'

/** Marks by which a component's process is known although nobody recorded it. */
export type StrayMarks = {
  /** Its working folder. */
  readonly cwd: string
  /** One of its arguments, as it stands or with a suffix after a dot: drafts carry a random one. */
  readonly argument: string
  readonly programs: readonly string[]
}

/**
 * Ends what a start left running when it was killed between starting a process and recording it. All three marks must agree,
 * so that an editor or a pager on a file of the sandbox is never taken for a part of it. Only Linux shows them.
 */
export async function endStrays(marks: StrayMarks): Promise<void> {
  if (process.platform !== 'linux') return
  const pids = readdirSync('/proc')
    .map(Number)
    .filter(pid => Number.isInteger(pid) && pid > 0 && matches(pid, marks))
  await Promise.all(
    pids.map(async pid => {
      const startTime = startTimeOf(pid)
      if (startTime !== null) await killProcess({ name: 'stray', pid, startTime })
    }),
  )
}

function matches(pid: number, marks: StrayMarks): boolean {
  try {
    if (readlinkSync(`/proc/${pid}/cwd`) !== marks.cwd) return false
    const [program = '', ...args] = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    return marks.programs.includes(basename(program)) && args.some(arg => arg === marks.argument || arg.startsWith(`${marks.argument}.`))
  } catch {
    return false
  }
}
