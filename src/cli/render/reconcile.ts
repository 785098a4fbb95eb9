import type { ReconcileItem } from '../../domain/failover.ts'
import { printable } from './error.ts'
import { renderTable } from './table.ts'

/** What does not fit stands in `-o json` and in the file of `--csv`. */
const CELL = 72

// Outside of ASCII JSON escapes none of what a terminal or an editor acts on; \u escapes keep it readable by every parser.
const INVISIBLE = /[\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]/g
/** What a spreadsheet begins a formula with, after a blank or a tab too; and the mark itself, so that it can be taken away again without a doubt. */
const FORMULA = /^[\s']*[=+\-@']|^[\t\r\n]/

export function itemsText(items: readonly ReconcileItem[]): string {
  return renderTable(
    ['item', 'key', 'kind', 'decision', 'what', 'content'],
    items.map(i => [i.id, i.key, i.kind, i.decision ?? '-', i.subject, JSON.stringify(i.content)].map((text, n) => cell(text, n > 2))),
  )
}

export function itemJson(item: ReconcileItem): string {
  return JSON.stringify(item)
}

export const CSV_HEAD = row(['run', 'item', 'key', 'kind', 'what', 'foundAt', 'decision', 'reason', 'decidedAt', 'decidedBy', 'content'])

/** One line of RFC 4180. The content is JSON and holds the key and everything else as it is; nothing in a cell can be taken for a formula. */
export function csvRow(i: ReconcileItem): string {
  const content = JSON.stringify({ key: i.key, content: i.content }).replace(
    INVISIBLE,
    c => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
  return row([
    i.runId,
    i.id,
    i.key,
    i.kind,
    i.subject,
    i.foundAt,
    i.decision ?? '',
    i.reason ?? '',
    i.decidedAt ?? '',
    i.decidedBy ?? '',
    content,
  ])
}

function row(cells: readonly string[]): string {
  return `${cells.map(text => `"${guarded(printable(text)).replaceAll('"', '""')}"`).join(',')}\r\n`
}

function guarded(text: string): string {
  return FORMULA.test(text) ? `'${text}` : text
}

function cell(text: string, cut: boolean): string {
  const line = printable(text).replace(/\s+/g, ' ')
  return cut && line.length > CELL ? `${line.slice(0, CELL - 3)}...` : line
}
