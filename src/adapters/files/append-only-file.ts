import { constants } from 'node:fs'
import { mkdir, open, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Json } from '../../domain/evidence.ts'

/**
 * Lines of JSON that are only ever added, by any number of processes. Each is one `write` to a file opened for appending, so that two never
 * mix; and begins with a line end, so that what a crash has torn spoils no line but its own.
 */
export interface AppendOnlyFile {
  readonly path: string
  /** On disk when it returns: a power cut on the next line loses nothing of it. */
  append(lines: readonly Json[]): Promise<void>
  /** Every whole line, oldest first; none when there is no file. */
  read(): Promise<readonly Json[]>
}

export function createAppendOnlyFile(path: string): AppendOnlyFile {
  return {
    path,
    append: async lines => {
      await mkdir(dirname(path), { recursive: true, mode: 0o700 })
      // O_NOFOLLOW: whoever could plant a link here must not choose what is written to.
      const flags = constants.O_APPEND | constants.O_CREAT | constants.O_WRONLY | constants.O_NOFOLLOW
      const file = await open(path, flags, 0o600)
      try {
        const bytes = Buffer.from(`\n${lines.map(line => JSON.stringify(line)).join('\n')}\n`)
        const { bytesWritten } = await file.write(bytes)
        if (bytesWritten !== bytes.length) throw new Error(`only ${bytesWritten} of ${bytes.length} bytes were written`)
        await file.sync()
      } finally {
        await file.close()
      }
      await syncFolder(dirname(path))
    },
    read: async () => {
      const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return ''
        throw error
      })
      return text.split('\n').flatMap(wholeLine)
    },
  }
}

/** A file that was just made is lost in a power cut unless its folder is on disk too. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY)
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

function wholeLine(line: string): readonly Json[] {
  if (line === '') return []
  try {
    return [JSON.parse(line) as Json]
  } catch {
    return []
  }
}
