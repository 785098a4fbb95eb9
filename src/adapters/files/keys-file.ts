import { HomeregionError } from '../../domain/errors.ts'
import { keyProblem, showKey } from '../../domain/key.ts'
import { problemsError, type SourceProblem } from './source-problem.ts'
import { readText } from './text-file.ts'

export type KeysFileOptions = {
  /**
   * What the caller knows about the keys: for each key that may not be used, why (`is not registered`, `is at region-b already`).
   * Asked once, with the keys that are well formed, so that one report holds everything.
   */
  readonly judge?: (keys: readonly string[]) => Promise<ReadonlyMap<string, string>>
  readonly limits?: { readonly keys: number; readonly bytes: number }
}

/** A region move of more keys is another verb; 100 bytes for each is more than keys have. */
const LIMITS = { keys: 1_000_000, bytes: 100_000_000 }

type Entry = { readonly key: string; readonly line: number }

/**
 * Keys of a file, one a line, in its order. Empty lines and lines that begin with # are skipped; a BOM and CRLF line ends are accepted.
 * @throws `keys-file-invalid` with every problem and its line; nothing has been done then
 */
export async function readKeysFile(path: string, options: KeysFileOptions = {}): Promise<readonly string[]> {
  const limits = options.limits ?? LIMITS
  const read = readable(path, limits.bytes)
  if ('problem' in read) throw invalid(path, [{ file: path, hint: null, excerpt: '', ...read.problem }])
  const entries = keyLines(read.text)
  if (entries.length === 0) throw invalid(path, [problem(path, 1, 'the file holds no key', 'one key a line; # begins a comment')])
  if (entries.length > limits.keys) {
    const first = entries[limits.keys]?.line ?? 1
    throw invalid(path, [problem(path, first, `more than ${limits.keys} keys: there are ${entries.length}`, 'split the file')])
  }
  const { good, problems } = sort(path, entries)
  const refused = await ask(options, good, () => (problems.length > 0 ? invalid(path, problems) : null))
  const judged = good.flatMap(({ key, line }) => {
    const why = refused.get(key)
    return why === undefined ? [] : [problem(path, line, `${showKey(key)} ${why}`, null)]
  })
  if (problems.length + judged.length > 0) throw invalid(path, [...problems, ...judged])
  return good.map(entry => entry.key)
}

/** Whoever is asked may be out of reach; what is wrong with the file itself is worth more to the operator then. */
async function ask(
  { judge }: KeysFileOptions,
  good: readonly Entry[],
  known: () => HomeregionError | null,
): Promise<ReadonlyMap<string, string>> {
  if (judge === undefined) return new Map()
  return await judge(good.map(entry => entry.key)).catch((error: unknown) => {
    throw known() ?? error
  })
}

function readable(path: string, limit: number): ReturnType<typeof readText> {
  try {
    return readText(path, limit)
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : 'it cannot be read'
    throw new HomeregionError('keys-file-invalid', { fact: `${path}: ${why}`, state: 'Nothing was changed.' }, { cause: error })
  }
}

function keyLines(text: string): readonly Entry[] {
  return text
    .split('\n')
    .map((raw, i) => ({ key: raw.endsWith('\r') ? raw.slice(0, -1) : raw, line: i + 1 }))
    .filter(({ key }) => key.trim() !== '' && !key.startsWith('#'))
}

/** Entries that are well formed and new, and what is wrong with the others. */
function sort(path: string, entries: readonly Entry[]): { good: Entry[]; problems: SourceProblem[] } {
  const lines = new Map<string, number>()
  const good: Entry[] = []
  const problems: SourceProblem[] = []
  for (const entry of entries) {
    const wrong = keyProblem(entry.key)
    const before = lines.get(entry.key)
    if (wrong !== null) problems.push(problem(path, entry.line, `${showKey(entry.key)}: ${wrong}`, null))
    else if (before !== undefined) problems.push(problem(path, entry.line, `${showKey(entry.key)} stands on line ${before} already`, null))
    else {
      lines.set(entry.key, entry.line)
      good.push(entry)
    }
  }
  return { good, problems }
}

function problem(file: string, line: number, message: string, hint: string | null): SourceProblem {
  return { file, line, column: 1, message, hint, excerpt: '' }
}

function invalid(path: string, problems: readonly SourceProblem[]): HomeregionError {
  return problemsError('keys-file-invalid', path, problems, 'correct the file, then the same command again')
}
