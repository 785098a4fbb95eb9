export type Watched = {
  /** Called whenever something was written. */
  readonly changed: Set<() => void>
  /** Settles when nothing more can come. */
  readonly done: Promise<unknown>
  readonly matches: () => boolean
  /** What was waited for, and everything that came instead. */
  readonly missing: () => string
}

/** Resolves when the output matches. @throws when it ends, or `timeoutMs` passes, without */
export async function waitForOutput({ changed, done, matches, missing }: Watched, timeoutMs: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const finish = (settle: () => void) => {
      clearTimeout(timer)
      changed.delete(look)
      settle()
    }
    const look = () => {
      if (matches()) finish(resolve)
    }
    const without = (why: string) => () => finish(() => reject(new Error(`${why} before ${missing()}`)))
    const timer = setTimeout(without(`${timeoutMs} ms passed`), timeoutMs)
    changed.add(look)
    done.then(without('it ended'), reject)
    look()
  })
}
