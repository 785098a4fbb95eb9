import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { createSandbox } from '../../sandbox/sandbox.ts'
import { guardAgainstCrash } from './crash-guard.ts'

declare module 'vitest' {
  interface ProvidedContext {
    rigDir: string
  }
}

/**
 * One rig per project, for the files that ask for it: the first `useRig` starts it, each later one mends it, and it is taken
 * down here when the project is done, or by the guard when the whole run dies.
 */
export default function setup(project: TestProject): () => Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), `homeregion-rig-${project.name}-`))
  const guard = guardAgainstCrash(dir)
  project.provide('rigDir', dir)
  return async () => {
    await createSandbox({ dir }).down()
    // Nothing was started in it when no file asked for the rig.
    rmSync(dir, { recursive: true, force: true })
    guard.release()
  }
}
