import { readFileSync } from 'node:fs'

export type ProcessWatch = {
  /** What was seen so far: the command lines of the process and of everything it started, and the environments of what it started. */
  seen(): ReadonlyMap<string, string>
  stop(): void
}

// A program that cats a file lives for a few milliseconds.
const EVERY_MS = 3

/** Looks at a process and its descendants, as `ps` would, again and again while it runs. */
export function watchProcess(pid: number): ProcessWatch {
  const seen = new Map<string, string>()
  const own = text(`/proc/${pid}/cmdline`)
  const look = (at: number, depth: number) => {
    const line = text(`/proc/${at}/cmdline`)
    note(seen, `cmdline of ${depth === 0 ? 'the command' : 'a child'}`, line)
    // Until it has become the program that was asked for, it is a copy of ours, in which only we are.
    if (depth > 0 && line !== own) note(seen, 'environ of a child', text(`/proc/${at}/environ`))
    for (const child of text(`/proc/${at}/task/${at}/children`)
      .split(' ')
      .filter(c => c !== ''))
      look(Number(child), depth + 1)
  }
  const timer = setInterval(() => look(pid, 0), EVERY_MS)
  return { seen: () => seen, stop: () => clearInterval(timer) }
}

function note(seen: Map<string, string>, what: string, found: string): void {
  if (found !== '') seen.set(`${what}: ${found}`, found.replaceAll('\0', '\n'))
}

/** It may have ended in the meantime. */
function text(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
