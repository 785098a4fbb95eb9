import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { packageFile } from '../../src/adapters/files/package-root.ts'

let checked = false

/** Builds `dist/` unless it is newer than every source: tests of the command line run what is in the bundle. */
export function ensureBundle(): void {
  if (checked) return
  const bundle = packageFile('dist', 'main.js')
  const fresh = existsSync(bundle) && statSync(bundle).mtimeMs > newestSource()
  if (!fresh)
    execFileSync(process.execPath, [packageFile('scripts', 'build.mjs')], { cwd: packageFile(), stdio: ['ignore', 'ignore', 'inherit'] })
  checked = true
}

function newestSource(): number {
  const times = ['src', 'sandbox'].flatMap(folder =>
    readdirSync(packageFile(folder), { recursive: true, encoding: 'utf8' })
      .filter(name => name.endsWith('.ts'))
      .map(name => statSync(join(packageFile(folder), name)).mtimeMs),
  )
  return Math.max(...times)
}
