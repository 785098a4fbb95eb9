import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, lstat, open, readFile, realpath, rename, stat, unlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import type { Sink } from '../../domain/sink.ts'
import { sinkError } from './sink-error.ts'

/** Of a new file. */
const MODE = 0o600
/** Whatever was open to the world is not any more. */
const KEPT_BITS = 0o770

/** Of the file that is replaced: who reads it by its group has to read the next one as well. */
type Owner = { readonly uid: number; readonly gid: number; readonly mode: number }

/** Replaces the file in one step: a reader sees the old secret or the new one, whole, and a crash leaves one of the two. */
export function createFileSink(path: string): Sink {
  const place = `file ${path}`
  const problem = (why: string) => sinkError(place, why, `ls -ld ${path}`)
  const coded = (error: unknown): never => {
    throw problem(reason(error))
  }
  return {
    place,
    deliver: async secret => {
      const target = await existingTarget(path, problem)
      await write(target?.path ?? path, secret, target?.owner ?? null).catch(coded)
    },
    readsBack: true,
    read: async () => {
      const target = await existingTarget(path, problem)
      if (target === null) return null
      const text = (await readFile(target.path, 'utf8').catch(coded)).replace(/\r?\n$/, '')
      return text === '' ? null : text
    },
  }
}

/** The file that is there, through links; null when there is none. */
async function existingTarget(path: string, problem: (why: string) => Error): Promise<{ path: string; owner: Owner } | null> {
  const link = await lstat(path).catch((error: unknown) => {
    if (code(error) === 'ENOENT') return null
    throw problem(reason(error))
  })
  if (link === null) return null
  const target = await realpath(path).catch((error: unknown) => {
    throw problem(code(error) === 'ENOENT' ? 'it is a link to nothing' : reason(error))
  })
  const found = await stat(target).catch((error: unknown) => {
    throw problem(reason(error))
  })
  if (found.isDirectory()) throw problem('it is a directory')
  if (!found.isFile()) throw problem('it is not a regular file')
  const self = process.getuid?.()
  // Replaced, it would belong to us, and with mode 0600 its owner could no longer read it.
  if (self !== undefined && self !== 0 && self !== found.uid)
    throw problem(`it belongs to user id ${found.uid}, and only root could keep it so; run this as that user or as root`)
  return { path: target, owner: { uid: found.uid, gid: found.gid, mode: found.mode & KEPT_BITS } }
}

async function write(path: string, secret: string, owner: Owner | null): Promise<void> {
  const draft = join(dirname(path), `.${basename(path)}.homeregion-${randomBytes(6).toString('hex')}`)
  // O_EXCL and O_NOFOLLOW: nobody can have put a link of theirs in the way of the secret.
  const handle = await open(draft, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW, MODE)
  try {
    await fill(handle, secret, owner)
    await rename(draft, path)
  } catch (error) {
    await unlink(draft).catch(() => undefined)
    throw error
  }
  await syncFolder(dirname(path))
}

async function fill(handle: FileHandle, secret: string, owner: Owner | null): Promise<void> {
  try {
    // Before there is anything to read in it.
    await handle.chmod(MODE)
    if (owner !== null) await keepOwner(handle, owner)
    await handle.writeFile(secret)
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Its group can be kept by root, and by whoever is in it. */
async function keepOwner(handle: FileHandle, owner: Owner): Promise<void> {
  const { uid, gid } = await handle.stat()
  if (uid !== owner.uid || gid !== owner.gid) await handle.chown(owner.uid, owner.gid)
  await handle.chmod(owner.mode)
}

/** Else the old name could be back after a power failure, with the old secret behind it. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

function code(error: unknown): string | null {
  return (error as NodeJS.ErrnoException).code ?? null
}

const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'its folder does not exist',
  ENOTDIR: 'a part of its folder is not a directory',
  EACCES: 'permission denied',
  EPERM: 'its owner or group cannot be kept',
  ELOOP: 'its links lead in a circle',
  EROFS: 'the file system is read-only',
  ENOSPC: 'no space left on the device',
  EISDIR: 'it is a directory',
}

function reason(error: unknown): string {
  const name = code(error)
  return name === null ? 'it cannot be written' : `${REASONS[name] ?? 'it cannot be written'} (${name})`
}
