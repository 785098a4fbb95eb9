import type { LoadedConfig } from '../../adapters/files/config-file.ts'
import type { Origin } from '../../adapters/files/config-overrides.ts'

type Leaf = { readonly path: readonly string[]; readonly text: string }

/** The effective configuration as a homeregion.yaml that could be used as it is, each line with where its value came from. */
export function configYaml({ effective, origins }: LoadedConfig): string {
  const lines = emit(effective, [], 0)
  const width = Math.min(80, Math.max(...lines.map(line => line.text.length)))
  return lines.map(({ text, path }) => (path === null ? text : `${text.padEnd(width)}  # ${originText(origins(path))}`)).join('\n')
}

export function configJson({ effective, file, origins }: LoadedConfig): string {
  const from = Object.fromEntries(leaves(effective, []).map(({ path }) => [path.join('.'), originText(origins(path))]))
  return JSON.stringify({ file, config: effective, origins: from }, null, 2)
}

export function originText(origin: Origin): string {
  switch (origin.from) {
    case 'file':
      return `${origin.file}:${origin.line}`
    case 'environment':
      return `env ${origin.name}`
    case 'flag':
      return `flag ${origin.name}`
    case 'default':
      return 'default'
  }
}

function leaves(value: unknown, path: readonly string[]): Leaf[] {
  const text = inline(value)
  if (text !== null) return [{ path, text }]
  return children(value).flatMap(([name, inner]) => leaves(inner, [...path, name]))
}

type Line = { readonly text: string; readonly path: readonly string[] | null }

function emit(value: unknown, path: readonly string[], depth: number): Line[] {
  const pad = '  '.repeat(depth)
  if (Array.isArray(value))
    return value.flatMap((item, i) =>
      emit(item, [...path, String(i)], depth + 1).map((line, n) =>
        n === 0 ? { ...line, text: `${pad}- ${line.text.trimStart()}` } : line,
      ),
    )
  return children(value).flatMap(([name, inner]): Line[] => {
    const at = [...path, name]
    const text = inline(inner)
    if (text !== null) return [{ text: `${pad}${scalar(name)}: ${text}`, path: at }]
    return [{ text: `${pad}${scalar(name)}:`, path: null }, ...emit(inner, at, depth + 1)]
  })
}

function children(value: unknown): [string, unknown][] {
  return Object.entries(value as object).filter(([, inner]) => inner !== undefined)
}

/** What fits on one line: scalars, lists of them, and the references to secrets. */
function inline(value: unknown): string | null {
  if (Array.isArray(value)) return value.every(item => typeof item !== 'object') ? `[${value.map(scalar).join(', ')}]` : null
  if (typeof value !== 'object' || value === null) return scalar(value)
  const entries = children(value)
  const [name, inner] = entries[0] ?? []
  const isReference = entries.length === 1 && (name === 'env' || name === 'file' || name === 'command')
  return isReference ? `{ ${name}: ${inline(inner)} }` : null
}

const PLAIN = /^(?:[A-Za-z_/][\w./:@?=%-]*(?<!:)|\d+(?:ms|s|m|h))$/
const WORDS = /^(?:true|false|null|yes|no|on|off|y|n)$/i

function scalar(value: unknown): string {
  return typeof value === 'string' && PLAIN.test(value) && !WORDS.test(value) ? value : JSON.stringify(value)
}
