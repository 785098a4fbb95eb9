import { existsSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import * as z from 'zod/mini'
import type { Config } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { toConfig } from './config-map.ts'
import { type AppliedOverride, givenOverrides, type Origin, withOverrides } from './config-overrides.ts'
import { configProblems, regionNameProblems } from './config-rules.ts'
import { type ConfigFile, configSchema } from './config-schema.ts'
import { type SchemaProblem, schemaProblems } from './schema-problems.ts'
import { problemsError, type SourceProblem } from './source-problem.ts'
import { readText } from './text-file.ts'
import { parseYaml, type YamlSource } from './yaml-source.ts'

export const CONFIG_FILE = 'homeregion.yaml'

/** A configuration of a hundred regions has a few thousand lines. */
const LIMIT_BYTES = 1_000_000

export type LoadedConfig = {
  readonly file: string
  readonly config: Config
  /** The same in the file's own shape, defaults and overrides filled in. */
  readonly effective: ConfigFile
  /** Where the value at a path of `effective` came from. */
  readonly origins: (path: readonly string[]) => Origin
}

export type ConfigRequest = {
  readonly file?: string
  readonly env: Readonly<Record<string, string | undefined>>
  readonly flags: { readonly controlPlane?: string }
  readonly cwd: string
}

/** The effective configuration: flags > environment > file. @throws `config-not-found`, `config-invalid` with every problem in one report */
export function loadConfig(request: ConfigRequest): LoadedConfig {
  const path = findConfig(request)
  const source = readSource(path, shownPath(path, request.cwd))
  const overrides = givenOverrides(request.env, request.flags)
  const value = withOverrides(source.value, overrides)
  // Compiling a validator pays off for many values; here there is one, and the start is what counts.
  const parsed = configSchema.safeParse(value, { jitless: true })
  const names = regionNameProblems(value)
  if (!parsed.success) throw invalid(source, overrides, [...names, ...schemaProblems(configSchema, value, parsed.error.issues)])
  const problems = [...names, ...configProblems(parsed.data)]
  if (problems.length > 0) throw invalid(source, overrides, problems)
  return {
    file: path,
    config: toConfig(parsed.data, dirname(path)),
    effective: parsed.data,
    origins: at => originOf(at, source, overrides),
  }
}

/** Draft 7, which the YAML language server of the editors reads. */
export function configJsonSchema(): unknown {
  return { title: 'homeregion configuration', ...z.toJSONSchema(configSchema, { io: 'input', target: 'draft-7' }) }
}

/** `--config`, else HOMEREGION_CONFIG, else homeregion.yaml in this folder or one above it, up to the git root. */
export function findConfig({ file, env, cwd }: ConfigRequest): string {
  const named = file ?? (env['HOMEREGION_CONFIG'] === '' ? undefined : env['HOMEREGION_CONFIG'])
  if (named !== undefined) {
    const path = resolve(cwd, named)
    if (existsSync(path)) return path
    throw new HomeregionError('config-not-found', {
      fact: `there is no configuration file ${path} (${file === undefined ? 'from HOMEREGION_CONFIG' : 'from --config'})`,
      state: 'Nothing was read or changed.',
      next: NAME_ONE,
    })
  }
  const found = foldersUp(cwd)
    .map(folder => join(folder, CONFIG_FILE))
    .find(path => existsSync(path))
  if (found !== undefined) return found
  throw new HomeregionError('config-not-found', {
    fact: `no ${CONFIG_FILE} in ${cwd} or above it, up to the git root`,
    state: 'Nothing was read or changed.',
    next: NAME_ONE,
  })
}

const NAME_ONE = 'export HOMEREGION_CONFIG=FILE   (or give --config FILE)'

/** Outside a repository only the folder itself: a file further up may belong to somebody else. */
function foldersUp(cwd: string): readonly string[] {
  const folders: string[] = []
  for (let at = resolve(cwd); ; at = dirname(at)) {
    folders.push(at)
    if (existsSync(join(at, '.git'))) return folders
    if (dirname(at) === at) return [resolve(cwd)]
  }
}

function readSource(path: string, shown: string): YamlSource {
  const read = readable(path, shown)
  if ('problem' in read) throw problemsError('config-invalid', shown, [{ file: shown, hint: null, excerpt: '', ...read.problem }], NEXT)
  const source = parseYaml(shown, read.text)
  if (source.problems.length > 0) throw problemsError('config-invalid', shown, source.problems, NEXT)
  return source
}

function readable(path: string, shown: string): ReturnType<typeof readText> {
  try {
    return readText(path, LIMIT_BYTES)
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? 'unreadable'
    throw new HomeregionError(
      'config-not-found',
      { fact: `${shown} cannot be read: ${why}`, state: 'Nothing was changed.', next: NAME_ONE },
      { cause: error },
    )
  }
}

const NEXT = 'homeregion config validate'

function invalid(source: YamlSource, overrides: readonly AppliedOverride[], problems: readonly SchemaProblem[]): HomeregionError {
  const placed = problems.map(({ path, message: said, hint, at, other }): SourceProblem => {
    const line = other === undefined ? null : source.line(other)
    const message = line === null ? said : `${said} (line ${line})`
    const override = overriding(path, overrides)
    // A value that is not from the file has no line there: its variable or flag is its place.
    if (override !== undefined) return { file: override, line: 0, column: 0, message, hint, excerpt: '' }
    return source.problem(path, message, hint, at)
  })
  return problemsError('config-invalid', source.file, placed, NEXT)
}

function overriding(path: readonly PropertyKey[], overrides: readonly AppliedOverride[]): string | undefined {
  const origin = overrides.findLast(o => o.path.join('.') === path.map(String).join('.'))?.origin
  return origin === undefined || !('name' in origin) ? undefined : origin.name
}

function originOf(path: readonly string[], source: YamlSource, overrides: readonly AppliedOverride[]): Origin {
  const override = overrides.findLast(o => o.path.join('.') === path.join('.'))
  if (override !== undefined) return override.origin
  const line = source.line(path)
  return line === null ? { from: 'default' } : { from: 'file', file: source.file, line }
}

export function shownPath(path: string, cwd: string): string {
  const near = relative(cwd, path)
  return near === '' || near.startsWith('..') ? path : near
}
