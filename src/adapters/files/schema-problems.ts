import type * as z from 'zod/v4/core'
import { suggestion } from '../../domain/did-you-mean.ts'

/** One place where data does not fit its schema. */
export type SchemaProblem = {
  readonly path: readonly PropertyKey[]
  readonly at: 'value' | 'key'
  readonly message: string
  readonly hint: string | null
  /** A second place that the problem is about, whose line is named. */
  readonly other?: readonly PropertyKey[]
}

/** A problem that a rule found, in the same words as what the schema finds. */
export function problemAt(
  path: readonly PropertyKey[],
  message: string,
  hint: string | null = null,
  at: SchemaProblem['at'] = 'value',
): SchemaProblem {
  return { path, at, message: `${nameOf(path)}${message}`, hint }
}

type Issue = z.$ZodIssue

/** Zod's issues in the operator's words: which value, what was expected, and the word that was probably meant. */
export function schemaProblems(schema: z.$ZodType, value: unknown, issues: readonly Issue[]): SchemaProblem[] {
  return telling(issues).flatMap(issue => explain(schema, value, issue, []))
}

/** A mapping with a misspelt key also breaks the rules about its keys; the spelling says it all. */
function telling(issues: readonly Issue[]): readonly Issue[] {
  const misspelt = new Set(issues.flatMap(issue => (issue.code === 'unrecognized_keys' ? [issue.path.join('.')] : [])))
  return issues.filter(issue => issue.code !== 'custom' || !misspelt.has(issue.path.join('.')))
}

function explain(schema: z.$ZodType, root: unknown, issue: Issue, base: readonly PropertyKey[]): SchemaProblem[] {
  const path = [...base, ...issue.path]
  const value = valueAt(root, path)
  const say = (message: string, hint: string | null = null, at: SchemaProblem['at'] = 'value'): SchemaProblem[] => [
    problemAt(path, message, hint, at),
  ]
  switch (issue.code) {
    case 'unrecognized_keys': {
      if (path.includes('password')) return say('a password is a reference', PASSWORD_HINT)
      const allowed = keysAt(schema, path)
      return issue.keys.map(key => ({
        path: [...path, key],
        at: 'key',
        message: `${nameOf(path)}unknown key ${quote(key)}`,
        hint: suggestion(key, allowed),
      }))
    }
    case 'invalid_value': {
      const options = issue.values.map(String)
      if (value === undefined) return say('is missing', `one of ${options.join(', ')}`)
      if (typeof value !== 'string') return say(`expected a name, found ${kindOf(value)}`, `one of ${options.join(', ')}`)
      return say(`${quote(value)} is not known here`, suggestion(value, options))
    }
    case 'invalid_type':
      if (value !== undefined && path.at(-1) === 'password') return say('a password is a reference', PASSWORD_HINT)
      return value === undefined ? say('is missing') : say(`expected ${EXPECTED[issue.expected] ?? issue.expected}, found ${kindOf(value)}`)
    case 'invalid_union':
      // A union with words of its own names all its forms: the closest branch would name one.
      if (custom(issue.message) !== null) return say(value === undefined ? `is missing: ${issue.message}` : issue.message)
      return telling(closest(value, issue.errors)).flatMap(inner => explain(schema, root, inner, path))
    case 'invalid_key':
      return say(`${quote(String(path.at(-1)))} ${issue.issues[0]?.message ?? 'is not allowed'}`, null, 'key')
    case 'too_small':
    case 'too_big':
      return say(custom(issue.message) ?? limit(issue))
    default:
      return say(custom(issue.message) ?? 'is not valid')
  }
}

/** Below a password neither key nor value is quoted: either may be the secret, pasted into the wrong place. */
const PASSWORD_HINT = '{ env: NAME }, { file: PATH } or { command: [PROGRAM, ...] }'

/** Zod without a locale says only "Invalid input"; everything else was written for this schema. */
function custom(message: string): string | null {
  return message === 'Invalid input' || message === '' ? null : message
}

function limit(issue: z.$ZodIssueTooSmall | z.$ZodIssueTooBig): string {
  return issue.code === 'too_small' ? `must be at least ${issue.minimum}` : `must be at most ${issue.maximum}`
}

const EXPECTED: Readonly<Record<string, string>> = {
  string: 'a text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'a mapping',
  record: 'a mapping',
}

function kindOf(value: unknown): string {
  if (value === null) return 'nothing'
  if (Array.isArray(value)) return 'a list'
  if (typeof value === 'object') return 'a mapping'
  return typeof value === 'string' ? 'a text' : typeof value === 'boolean' ? 'true or false' : 'a number'
}

function quote(word: string): string {
  return JSON.stringify(word.length > 60 ? `${word.slice(0, 59)}…` : word)
}

function nameOf(path: readonly PropertyKey[]): string {
  if (path.length === 0) return ''
  return `${path.map((part, i) => (typeof part === 'number' ? `[${part}]` : `${i === 0 ? '' : '.'}${String(part)}`)).join('')}: `
}

/** The branch of a union that was meant: the one that did not already refuse the kind of value, else the one that got furthest. */
function closest(value: unknown, branches: readonly (readonly Issue[])[]): readonly Issue[] {
  const fits = branches.filter(issues => !issues.some(issue => issue.path.length === 0 && issue.code === 'invalid_type'))
  const ranked = [...(fits.length > 0 ? fits : branches)].sort((a, b) => rank(value, a) - rank(value, b))
  return ranked[0] ?? []
}

function rank(value: unknown, issues: readonly Issue[]): number {
  // A scalar that is not one of the words beats a branch that wants another kind; below that, fewer complaints are closer.
  const kind = issues.some(issue => issue.path.length === 0 && issue.code === 'invalid_value') && typeof value !== 'string' ? 100 : 0
  return kind + issues.reduce((sum, issue) => sum + (issue.code === 'unrecognized_keys' ? 2 * issue.keys.length : 1), 0)
}

function valueAt(root: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (at, part) => (typeof at === 'object' && at !== null ? (at as Record<PropertyKey, unknown>)[part] : undefined),
    root,
  )
}

/** Keys the schema knows for the mapping at `path`; of every branch where it is a union. */
export function keysAt(schema: z.$ZodType, path: readonly PropertyKey[]): string[] {
  const { def } = (schema as z.$ZodTypes)._zod
  switch (def.type) {
    case 'object': {
      const [head, ...rest] = path
      if (head === undefined) return Object.keys(def.shape)
      const inner = def.shape[String(head)]
      return inner === undefined ? [] : keysAt(inner, rest)
    }
    case 'array':
      return keysAt(def.element, path.slice(1))
    case 'record':
      return keysAt(def.valueType, path.slice(1))
    case 'optional':
    case 'nullable':
    case 'default':
    case 'prefault':
      return keysAt(def.innerType, path)
    case 'union':
      return [...new Set(def.options.flatMap(option => keysAt(option, path)))]
    default:
      return []
  }
}
