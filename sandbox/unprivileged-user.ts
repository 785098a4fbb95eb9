import { chmodSync, readFileSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, sep } from 'node:path'
import { sandboxError } from './sandbox-error.ts'

/** A user to run PostgreSQL as, because it refuses to run as root. */
export type UnprivilegedUser = { readonly name: string; readonly uid: number; readonly gid: number }

/** null when this process is not root and can start PostgreSQL itself. */
export function unprivilegedUser(): UnprivilegedUser | null {
  if (process.getuid?.() !== 0) return null
  const users = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map(line => line.split(':'))
    .map(([name = '', , uid, gid]) => ({ name, uid: Number(uid), gid: Number(gid) }))
  const found = users.find(u => u.name === 'postgres') ?? users.find(u => u.name === 'nobody')
  if (found === undefined || found.uid === 0) {
    throw sandboxError(
      'PostgreSQL refuses to run as root, and there is no user postgres or nobody to run it as',
      'useradd --system postgres',
    )
  }
  return found
}

/** The first folder on the way to `path` that `user` may not enter, or null. */
export function blockedAt(path: string, user: UnprivilegedUser): string | null {
  for (const folder of parents(path)) {
    const { mode, uid, gid } = statSync(folder)
    const bit = uid === user.uid ? 0o100 : gid === user.gid ? 0o010 : 0o001
    if ((mode & bit) === 0) return folder
  }
  return null
}

/**
 * Lets `user` pass through (not list) our own private folders below the temporary folder, as mkdtemp makes them. Folders
 * elsewhere keep their mode: it is not ours to widen a home directory.
 */
export function openWay(path: string, user: UnprivilegedUser): void {
  for (let blocked = blockedAt(path, user); blocked !== null; blocked = blockedAt(path, user)) {
    const { uid, mode } = statSync(blocked)
    const ours = uid === process.getuid?.() && blocked.startsWith(tmpdir() + sep)
    if (!ours) {
      throw sandboxError(
        `user ${user.name}, who runs PostgreSQL, may not enter ${blocked}`,
        'choose a folder below the temporary folder, or run this as a user other than root',
      )
    }
    chmodSync(blocked, (mode & 0o7777) | 0o011)
  }
}

/** Outermost first, `path` itself excluded. */
function parents(path: string): readonly string[] {
  const up = dirname(path)
  return up === path ? [] : [...parents(up), up]
}
