import { readFileSync } from 'node:fs'
import { packageFile } from '../files/package-root.ts'

/** One statement and why it is there, as `init --dry-run` shows it. */
export type BoundaryStatement = { readonly sql: string; readonly why: string }

/** Statements of `sql/<name>`: each begins at a run of lines `-- @ why`. `{{name}}` is replaced by text that is already quoted. */
export function sqlStatements(name: string, values: Readonly<Record<string, string>>): readonly BoundaryStatement[] {
  return sqlText(name)
    .split(/\n(?=-- @ )(?<!\n-- @ [^\n]*\n)|^(?=-- @ )/)
    .filter(block => block.startsWith('-- @ '))
    .map(block => {
      const lines = block.split('\n')
      const why = lines.filter(l => l.startsWith('-- @ ')).map(l => l.slice('-- @ '.length))
      const sql = lines.filter(l => !l.startsWith('-- @ ')).join('\n')
      return { why: fill(why.join(' '), values), sql: fill(sql, values).trim() }
    })
}

export function sqlText(name: string): string {
  return readFileSync(packageFile('src', 'adapters', 'postgres-region', 'sql', name), 'utf8')
}

function fill(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(/\{\{(\w+)\}\}/g, (_, name: string) => {
    const value = values[name]
    if (value === undefined) throw new RangeError(`the SQL template has no value for ${name}`)
    return value
  })
}
