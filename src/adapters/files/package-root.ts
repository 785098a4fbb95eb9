import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

let root: string | undefined

/** Folder of homeregion's own package.json: the same answer from `src/` and from the bundle in `dist/`. */
export function packageRoot(): string {
  root ??= find(dirname(fileURLToPath(import.meta.url)))
  return root
}

/** Absolute path of a file that ships with the package (SQL, runbooks, schemas, the sandbox's poms). */
export function packageFile(...parts: readonly string[]): string {
  return join(packageRoot(), ...parts)
}

function find(from: string): string {
  const manifest = join(from, 'package.json')
  if (existsSync(manifest) && (JSON.parse(readFileSync(manifest, 'utf8')) as { name?: string }).name === 'homeregion') return from
  const up = dirname(from)
  if (up === from) throw new Error('the homeregion package folder was not found')
  return find(up)
}
