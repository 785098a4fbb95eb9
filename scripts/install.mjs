// What the scripts of a fresh clone share; only Node's own modules may be used here.
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = join(dirname(fileURLToPath(import.meta.url)), '..')

/** Runs `npm ci` when node_modules is missing, or older than a lockfile that says something else. */
export function ensureInstalled() {
  if (installed()) return
  console.error('installing dependencies: npm ci')
  // npm ci prints to stdout; stdout stays free for the script's own result.
  runOrExit(process.platform === 'win32' ? 'npm.cmd' : 'npm', ['ci'], { stdio: ['ignore', 2, 2] })
}

function installed() {
  const marker = join(root, 'node_modules', '.package-lock.json')
  if (!existsSync(marker)) return false
  const lock = join(root, 'package-lock.json')
  return statSync(marker).mtimeMs >= statSync(lock).mtimeMs || samePackages(lock, marker)
}

/** A checkout gives the lockfile a new time; what counts is whether the versions in it are the installed ones. */
function samePackages(lock, marker) {
  const packages = file => JSON.parse(readFileSync(file, 'utf8')).packages
  const present = packages(marker)
  return Object.entries(packages(lock)).every(
    // Optional packages are those of other platforms.
    ([path, wanted]) => path === '' || wanted.optional === true || present[path]?.version === wanted.version,
  )
}

/** Runs a program in the project's folder; on failure this process ends with the same code. */
export function runOrExit(program, args, options = {}) {
  const { status, signal, error } = spawnSync(program, args, { cwd: root, stdio: 'inherit', ...options })
  if (error !== undefined) throw error
  if (status === 0) return
  console.error(`${program} ${args.join(' ')} ended with ${signal ?? `code ${status}`}`)
  process.exit(status ?? 1)
}
