import { open } from 'node:fs/promises'
import { HomeregionError } from '../../domain/errors.ts'

/** Writes a file that was not there, readable for its owner alone, and flushed to disk when it returns. @throws `usage` when it cannot be made */
export async function writeNewFile(path: string, chunks: AsyncIterable<string>): Promise<void> {
  const file = await open(path, 'wx', 0o600).catch((error: unknown) => {
    throw new HomeregionError(
      'usage',
      {
        fact: `${JSON.stringify(path)} cannot be written as a new file: ${error instanceof Error ? error.message : String(error)}`,
        state: 'Nothing was decided.',
        next: 'the same command with the name of a file that is not there yet',
      },
      { cause: error },
    )
  })
  try {
    for await (const chunk of chunks) await file.write(chunk)
    await file.sync()
  } finally {
    await file.close()
  }
}
