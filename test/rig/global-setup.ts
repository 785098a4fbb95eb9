import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { createSandbox } from '../../sandbox/sandbox.ts'
import { guardAgainstCrash } from './crash-guard.ts'

declare module 'vitest' {
  interface ProvidedContext {
    rigDirs: readonly string[]
  }
}

/**
 * One rig for each worker of a project, for the files that ask for it: the first `useRig` starts it, each later one mends it, and it is
 * taken down here when the project is done, or by the guard when the whole run dies.
 */
export default function setup(project: TestProject): () => Promise<void> {
  const rigs = Array.from({ length: project.vitest.config.maxWorkers }, () => {
    const dir = mkdtempSync(join(tmpdir(), `homeregion-rig-${project.name}-`))
    return { dir, guard: guardAgainstCrash(dir) }
  })
  project.provide(
    'rigDirs',
    rigs.map(rig => rig.dir),
  )
  return async () => {
    for (const { dir, guard } of rigs) {
      await createSandbox({ dir }).down()
      // Nothing was started in it when no file asked for the rig.
      rmSync(dir, { recursive: true, force: true })
      guard.release()
    }
  }
}
