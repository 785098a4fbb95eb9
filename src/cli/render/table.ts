import type { Printer } from '../context.ts'

/** Columns padded to their widest cell, two spaces apart; no box drawing, so that it can be pasted anywhere. */
export function renderTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map(row => (row[i] ?? '').length)))
  return [head, ...rows]
    .map(row =>
      row
        .map((cell, i) => cell.padEnd(widths[i] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

/** At a terminal that is too narrow, without the columns that can be spared, the first of them first; elsewhere with all. */
export function fittedTable(
  { isTerminal, columns }: Pick<Printer, 'isTerminal' | 'columns'>,
  head: readonly string[],
  rows: readonly (readonly string[])[],
  spare: readonly string[],
): string {
  const table = renderTable(head, rows)
  const [first, ...rest] = spare
  if (!isTerminal || first === undefined || table.split('\n').every(line => line.length <= columns)) return table
  const at = head.indexOf(first)
  const without = (row: readonly string[]) => row.filter((_, i) => i !== at)
  return fittedTable({ isTerminal, columns }, without(head), rows.map(without), rest)
}
