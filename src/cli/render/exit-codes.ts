import { EXIT } from '../../domain/exit-codes.ts'
import { renderTable } from './table.ts'

const rows = () => Object.values(EXIT).map(({ code, meaning }) => [String(code), meaning])

export function exitCodeTable(): string {
  return renderTable(['code', 'meaning'], rows())
}

/** Markdown of the README's table. */
export function exitCodeMarkdown(): string {
  return ['| code | meaning |', '| --- | --- |', ...rows().map(row => `| ${row.join(' | ')} |`)].join('\n')
}
