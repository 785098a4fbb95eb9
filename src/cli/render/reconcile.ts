import { stringify } from 'yaml'
import { isJsonObject, type Json } from '../../domain/evidence.ts'
import type { ReconcileItem } from '../../domain/failover.ts'
import { showKey } from '../../domain/key.ts'
import type { Printer } from '../context.ts'
import { printable } from './error.ts'
import { renderTable } from './table.ts'
import { wrapped } from './wrapped.ts'

// Outside of ASCII JSON escapes none of what a terminal or an editor acts on; \u escapes keep it readable by every parser.
const INVISIBLE = /[\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]/g
/** What a spreadsheet begins a formula with, after a blank or a tab too; and the mark itself, so that it can be taken away again without a doubt. */
const FORMULA = /^[\s']*[=+\-@']|^[\t\r\n]/

/** What of one key is on the list. Times are those that the writes say of themselves; null: none of them does. */
export type KeySum = {
  readonly key: string
  readonly writes: number
  readonly undecided: number
  readonly oldest: string | null
  readonly newest: string | null
}

export function sumUp(items: readonly ReconcileItem[]): readonly KeySum[] {
  const sums = new Map<string, KeySum>()
  for (const item of items) {
    const sum = sums.get(item.key) ?? { key: item.key, writes: 0, undecided: 0, oldest: null, newest: null }
    const at = writtenAt(item)
    sums.set(item.key, {
      key: item.key,
      writes: sum.writes + 1,
      undecided: sum.undecided + (item.decision === null ? 1 : 0),
      oldest: at === null || (sum.oldest !== null && sum.oldest < at) ? sum.oldest : at,
      newest: at === null || (sum.newest !== null && sum.newest > at) ? sum.newest : at,
    })
  }
  return [...sums.values()]
}

/** The key stands last: whatever its length, the figures stand under each other. */
export function keysText(keys: readonly KeySum[]): string {
  const rows = keys.map(k => [k.writes, k.undecided, k.oldest ?? '-', k.newest ?? '-', showKey(k.key)].map(String))
  return printable(renderTable(['writes', 'undecided', 'oldest', 'newest', 'key'], rows))
}

/** To the second and in UTC; null where the write says nothing of its time. */
function writtenAt({ content }: ReconcileItem): string | null {
  if (!isJsonObject(content)) return null
  const text = [content['occurredAt'], content['appliedAt']].find(value => typeof value === 'string' && value !== '')
  if (typeof text !== 'string') return null
  // As PostgreSQL writes it; a time without a zone is taken as UTC.
  const zone = /(Z|[+-]\d\d(:?\d\d)?)$/.exec(text)?.[0] ?? ''
  const at = Date.parse(
    `${text.slice(0, text.length - zone.length).replace(' ', 'T')}${zone === '' ? 'Z' : zone.length === 3 ? `${zone}:00` : zone}`,
  )
  return Number.isNaN(at) ? null : `${new Date(at).toISOString().slice(0, 19)}Z`
}

/** One item with all that was written, nothing of it cut: whoever decides about it has to see it. */
export function itemText(item: ReconcileItem, { columns, isTerminal }: Pick<Printer, 'columns' | 'isTerminal'>): string {
  const { id, kind, subject, decision, decidedBy, decidedAt, reason } = item
  const width = isTerminal ? columns : Number.POSITIVE_INFINITY
  const lines = (text: string, indent: number) => wrapped(printable(text), indent, width)
  const what = decision === null ? 'undecided' : `${decision} by ${decidedBy ?? '?'} at ${decidedAt ?? '?'}: ${reason ?? ''}`
  return [
    lines(subject.replace(/\s+/g, ' '), 2),
    lines(`  item      ${id}`, 12),
    lines(`  kind      ${kind}${writtenAt(item) === null ? '' : `, written ${writtenAt(item) ?? ''}`}`, 12),
    lines(`  decision  ${what.replace(/\s+/g, ' ')}`, 12),
    ...written(item).flatMap(([name, value]) => [`  ${name}`, ...yamlLines(value, width)]),
  ].join('\n')
}

/** Of an event its payload; of anything else what both sides have of it. */
function written({ content }: ReconcileItem): readonly (readonly [string, Json])[] {
  if (!isJsonObject(content)) return [['content', content]]
  const { payload, row, atHome, record } = content
  if (payload !== undefined && payload !== null) return [['payload', payload]]
  if (record !== undefined) return [['record', record]]
  if (row !== undefined)
    return [
      ['row', row],
      ['row at the new home', atHome ?? null],
    ]
  return [['content', content]]
}

function yamlLines(value: Json, width: number): readonly string[] {
  const room = Math.max(20, width - 4)
  const lineWidth = Number.isFinite(width) ? room - 2 : 0
  const text = printable(stringify(value, { lineWidth, aliasDuplicateObjects: false }).trimEnd())
  // What has no blank to be broken at is broken where the screen ends.
  return text
    .split('\n')
    .flatMap(line => Array.from({ length: Math.ceil(line.length / room) || 1 }, (_, i) => `    ${line.slice(i * room, (i + 1) * room)}`))
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
