import { randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Passwords made for one sandbox, one file each (0600), the same for as long as its folder lives. */
export interface SandboxSecrets {
  /** Absolute path, for `{file: …}` references. */
  file(name: string): string
  /** Made on first use. */
  read(name: string): string
}

export function createSandboxSecrets(dir: string): SandboxSecrets {
  const file = (name: string) => join(dir, name)
  return {
    file,
    read(name) {
      mkdirSync(dir, { recursive: true, mode: 0o700 })
      try {
        return readFileSync(file(name), 'utf8')
      } catch {
        // Written once with `wx`: of two at the same moment the first wins and the second reads it.
      }
      try {
        writeFileSync(file(name), randomBytes(24).toString('base64url'), { mode: 0o600, flag: 'wx' })
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      }
      return readFileSync(file(name), 'utf8')
    },
  }
}
