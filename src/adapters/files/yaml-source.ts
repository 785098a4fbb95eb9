import { type Document, isAlias, isMap, isNode, isPair, isScalar, LineCounter, type Node, type Pair, parseDocument, visit } from 'yaml'
import { excerpt, type Mask, type SourceProblem } from './source-problem.ts'

export type SourcePath = readonly PropertyKey[]

/** A parsed YAML file that can say where each of its values stands. */
export interface YamlSource {
  readonly file: string
  /** Plain data; undefined when `problems` is not empty. */
  readonly value: unknown
  /** What is wrong with it as YAML. */
  readonly problems: readonly SourceProblem[]
  /** A problem at the value of `path` (`key`: at its key), or at the nearest parent that exists. */
  problem(path: SourcePath, message: string, hint: string | null, at?: 'value' | 'key'): SourceProblem
  /** Line of the value, or null when the file does not have it. */
  line(path: SourcePath): number | null
}

/** Parses one document of plain data: no duplicate keys, anchors, aliases, merge keys, tags or directives. */
export function parseYaml(file: string, text: string): YamlSource {
  const counter = new LineCounter()
  const lines = text.split('\n')
  const at = (offset: number, message: string, hint: string | null, masks: readonly Span[] = []): SourceProblem => {
    const { line, col } = counter.linePos(Math.min(offset, text.length))
    // An empty file has no line at all.
    const place = { line: Math.max(1, line), column: Math.max(1, col) }
    const start = counter.lineStarts[place.line - 1] ?? 0
    const content = (lines[place.line - 1] ?? '').replace(/\r$/, '')
    return {
      file,
      ...place,
      message,
      hint,
      excerpt: content.trim() === '' ? '' : excerpt(content, place.line, place.column, within(masks, start)),
    }
  }
  const deep = tooDeep(text)
  if (deep !== null) {
    // Places are known only once the lines are: normally the parser finds them.
    counter.addNewLine(0)
    for (let i = text.indexOf('\n'); i >= 0; i = text.indexOf('\n', i + 1)) counter.addNewLine(i + 1)
    return unusable(file, at(deep, 'is nested too deeply', null))
  }
  const parsed = parse(text, counter)
  if (parsed === null || parsed.errors.some(error => error.message.includes('call stack')))
    return unusable(file, at(0, 'is nested too deeply', null))
  const problems = [...hiddenCharacters(text, at), ...syntaxProblems(parsed, at), ...forbidden(parsed, at)]
  if (problems.length === 0 && parsed.contents === null) problems.push(at(0, 'the file is empty', null))
  return {
    file,
    problems,
    value: problems.length === 0 ? parsed.toJS() : undefined,
    problem: (path, message, hint, where = 'value') => at(offsetOf(parsed, path, where), message, hint, secretSpans(parsed, path)),
    line: path => {
      const node = nodeAt(parsed, path)
      const pair = pairAt(parsed, path)
      const range = pair === undefined ? node?.range : keyRange(pair)
      return range === undefined || range === null ? null : counter.linePos(range[0]).line
    },
  }
}

type Span = readonly [start: number, end: number]
type At = (offset: number, message: string, hint: string | null) => SourceProblem

/** The files have six levels; a hundred is an attack, and the parser takes minutes to run out of stack. */
const DEEPEST = 100

/** Where brackets or block indicators nest too deeply, or null. Brackets in texts count too: no honest file has a hundred unclosed. */
function tooDeep(text: string): number | null {
  const block = /(?:[-?:] +){100}/.exec(text)
  if (block !== null) return block.index
  let depth = 0
  for (const found of text.matchAll(/[[\]{}]/g)) {
    depth = found[0] === '[' || found[0] === '{' ? depth + 1 : Math.max(0, depth - 1)
    if (depth > DEEPEST) return found.index
  }
  return null
}

// Not `logLevel: 'silent'`: that also drops the error about a second document, which would then be ignored without a word.
function parse(text: string, lineCounter: LineCounter): Document.Parsed | null {
  try {
    return parseDocument(text, { lineCounter, uniqueKeys: true, merge: false, version: '1.2', prettyErrors: false, logLevel: 'error' })
  } catch (error) {
    if (error instanceof RangeError) return null
    throw error
  }
}

function unusable(file: string, problem: SourceProblem): YamlSource {
  return { file, value: undefined, problems: [problem], problem: () => problem, line: () => null }
}

/** Control characters are no text, and bidirectional ones make a reviewer read something else than what is done. */
function hiddenCharacters(text: string, at: At): SourceProblem[] {
  return [...text.matchAll(/[^\P{Cc}\t\n\r]|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu)].map(found => {
    const code = (found[0].codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')
    return at(found.index, `the character U+${code} is not allowed`, 'remove it')
  })
}

/** `forbidden` reports these in the words of this tool; yaml's own messages would quote the value. */
const FORBIDDEN_ANYWAY: readonly string[] = ['BAD_ALIAS', 'TAG_RESOLVE_FAILED']

function syntaxProblems(doc: Document.Parsed, at: At): SourceProblem[] {
  return [...doc.errors, ...doc.warnings]
    .filter(error => !FORBIDDEN_ANYWAY.includes(error.code))
    .map(error => {
      if (error.code === 'MULTIPLE_DOCS') return at(error.pos[0], 'a second document begins here', 'keep one document in one file')
      if (error.code === 'DUPLICATE_KEY') return at(error.pos[0], 'this key stands here twice', 'remove one of the two')
      const [first = ''] = error.message.split('\n')
      return at(error.pos[0], `not valid YAML: ${first}`, null)
    })
}

/** What YAML allows, and what makes a file mean something else than what a reviewer reads. */
function forbidden(doc: Document.Parsed, at: At): SourceProblem[] {
  const problems: SourceProblem[] = []
  if (doc.directives.yaml.explicit === true) problems.push(at(0, 'YAML directives are not allowed', 'remove the line that begins with %'))
  visit(doc, {
    Node: (_key, node) => {
      const offset = node.range?.[0] ?? 0
      if (isAlias(node)) problems.push(at(offset, 'aliases (*name) are not allowed', 'write the value out'))
      else if (node.anchor !== undefined)
        problems.push(at(offset, 'anchors (&name) are not allowed', 'write the value out where it is used'))
      else if (node.tag !== undefined) problems.push(at(offset, 'tags (!name) are not allowed', 'remove it'))
    },
    Pair: (_key, pair) => {
      if (isScalar(pair.key) && pair.key.value === '<<')
        problems.push(at(pair.key.range?.[0] ?? 0, 'merge keys (<<) are not allowed', null))
      else if (!isScalar(pair.key) && isNode(pair.key)) problems.push(at(pair.key.range?.[0] ?? 0, 'a key must be a plain word', null))
    },
  })
  return problems
}

function nodeAt(doc: Document.Parsed, path: SourcePath): Node | undefined {
  const node = path.length === 0 ? doc.contents : doc.getIn(path, true)
  return isNode(node) ? node : undefined
}

function pairAt(doc: Document.Parsed, path: SourcePath): Pair | undefined {
  const name = path.at(-1)
  const parent = nodeAt(doc, path.slice(0, -1))
  if (typeof name !== 'string' || !isMap(parent)) return undefined
  return parent.items.find(item => isPair(item) && isScalar(item.key) && String(item.key.value) === name)
}

function keyRange(pair: Pair): Node['range'] {
  return isNode(pair.key) ? pair.key.range : undefined
}

/** A value that is not there is reported at its key, and a key that is not there at the mapping it is missing from. */
function offsetOf(doc: Document.Parsed, path: SourcePath, where: 'value' | 'key'): number {
  for (let depth = path.length; depth >= 0; depth--) {
    const part = path.slice(0, depth)
    const pair = pairAt(doc, part)
    const missing = depth < path.length
    // For something missing, the key that leads to the mapping is where the operator will add it.
    if (pair !== undefined && (where === 'key' || missing)) return keyRange(pair)?.[0] ?? 0
    const node = nodeAt(doc, part)
    if (node?.range !== undefined && node.range !== null) return node.range[0]
    if (pair !== undefined) return keyRange(pair)?.[0] ?? 0
  }
  return 0
}

const REFERENCE_KEYS = ['env', 'file', 'command']

/** Below a `password` key every scalar may be a secret that was pasted into the wrong place. */
function secretSpans(doc: Document.Parsed, path: SourcePath): Span[] {
  const depth = path.findIndex(part => part === 'password')
  const node = depth < 0 ? undefined : nodeAt(doc, path.slice(0, depth + 1))
  if (node === undefined) return []
  const spans: Span[] = []
  const add = (value: unknown) => {
    if (isScalar(value) && value.range) spans.push([value.range[0], value.range[1]])
  }
  if (isScalar(node)) add(node)
  else
    visit(node, {
      Scalar: (key, scalar) => {
        if (key !== 'key' || !REFERENCE_KEYS.includes(String(scalar.value))) add(scalar)
      },
    })
  return spans
}

function within(spans: readonly Span[], lineStart: number): Mask[] {
  return spans.map(([start, end]) => ({ start: Math.max(0, start - lineStart), end: end - lineStart })).filter(m => m.end > 0)
}
