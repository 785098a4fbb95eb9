import { createHash } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { resolve } from 'node:path'
import { suggestion } from '../../domain/did-you-mean.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { OWNERSHIP_ACTIONS, type PinnedRunbook, REJOIN_ACTIONS, type Runbook } from '../../domain/runbook.ts'
import { lintRunbook } from '../../domain/runbook-lint.ts'
import { MAPPING_ACTIONS, runbookSchema, toRunbook } from '../../domain/runbook-schema.ts'
import { packageFile } from './package-root.ts'
import { type SchemaProblem, schemaProblems } from './schema-problems.ts'
import { problemsError, type SourceProblem } from './source-problem.ts'
import { readText } from './text-file.ts'
import { parseYaml } from './yaml-source.ts'

/** The shipped runbooks have 2 kB; a file of a megabyte is something else. */
const LIMIT_BYTES = 1_000_000

/** A shipped runbook by its name, or any other by its path. @throws `runbook-invalid` with every problem in one report */
export function loadRunbook(nameOrFile: string, cwd: string = process.cwd()): PinnedRunbook {
  const shipped = shippedRunbooks()
  if (shipped.includes(nameOrFile)) return readRunbook(packageFile('runbooks', `${nameOrFile}.yaml`), `runbooks/${nameOrFile}.yaml`)
  if (/^[a-z0-9-]+$/.test(nameOrFile)) {
    throw new HomeregionError('runbook-invalid', {
      fact: `there is no runbook "${nameOrFile}"; ${suggestion(nameOrFile, shipped)} (a file is named with its .yaml)`,
      state: 'Nothing was changed.',
      next: 'homeregion runbook list',
    })
  }
  return readRunbook(resolve(cwd, nameOrFile), nameOrFile)
}

/** Names of the runbooks that ship with the package. */
export function shippedRunbooks(): readonly string[] {
  return readdirSync(packageFile('runbooks'))
    .flatMap(file => (file.endsWith('.yaml') ? [file.slice(0, -'.yaml'.length)] : []))
    .sort()
}

function readRunbook(path: string, origin: string): PinnedRunbook {
  const read = readable(path, origin)
  if ('text' in read) return parseRunbook(read.text, origin)
  throw invalid(origin, [{ file: origin, hint: null, excerpt: '', ...read.problem }])
}

function readable(path: string, origin: string): ReturnType<typeof readText> {
  try {
    return readText(path, LIMIT_BYTES)
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : 'it cannot be read'
    throw new HomeregionError(
      'runbook-invalid',
      { fact: `${origin}: ${why}`, state: 'Nothing was changed.', next: 'homeregion runbook list' },
      { cause: error },
    )
  }
}

/** The runbook of a text, linted. @throws `runbook-invalid` */
export function parseRunbook(text: string, origin: string): PinnedRunbook {
  const { runbook, source } = parse(text, origin)
  const problems = lintRunbook(runbook)
  if (problems.length > 0)
    throw invalid(
      origin,
      problems.map(({ path, message, hint }) => source.problem(path, message, hint)),
    )
  return { runbook, text, sha256: createHash('sha256').update(text, 'utf8').digest('hex'), origin }
}

/**
 * The text that an open run has pinned. It was linted when the run began; a rule that is younger must not keep the run from its end, nor from being taken
 * back. What an activation stands on is the interlock's, whatever the text says.
 */
export function parsePinned(text: string, origin: string): Runbook {
  return parse(text, origin).runbook
}

function parse(text: string, origin: string): { readonly runbook: Runbook; readonly source: ReturnType<typeof parseYaml> } {
  const source = parseYaml(origin, text)
  if (source.problems.length > 0) throw invalid(origin, source.problems)
  const parsed = runbookSchema.safeParse(source.value, { jitless: true })
  if (!parsed.success) {
    const problems = schemaProblems(runbookSchema, source.value, parsed.error.issues).map(betterHint(source.value))
    throw invalid(
      origin,
      problems.map(({ path, message, hint, at }) => source.problem(path, message, hint, at)),
    )
  }
  return { runbook: toRunbook(parsed.data), source }
}

function invalid(origin: string, problems: readonly SourceProblem[]): HomeregionError {
  return problemsError(
    'runbook-invalid',
    origin,
    problems,
    'homeregion runbook lint FILE, and homeregion runbook show transfer for one that is valid',
  )
}

/** An action is a word or a mapping; the schema knows only one of the two at a time. */
function betterHint(root: unknown): (problem: SchemaProblem) => SchemaProblem {
  return problem => {
    if (problem.path.at(-1) !== 'action') return problem
    const written = problem.path.reduce<unknown>((at, part) => (at as Record<PropertyKey, unknown> | undefined)?.[part], root)
    if (typeof written !== 'string') return problem
    if (written === 'approval') return { ...problem, hint: 'confirm: type-key asks the operator, before the drain' }
    if (MAPPING_ACTIONS.includes(written)) return { ...problem, hint: `${written} needs more than its name: action: { ${written}: … }` }
    return { ...problem, hint: suggestion(written, [...OWNERSHIP_ACTIONS, ...REJOIN_ACTIONS, ...MAPPING_ACTIONS]) }
  }
}
