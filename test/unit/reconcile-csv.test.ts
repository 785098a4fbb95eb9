import { expect, test } from 'vitest'
import { CSV_HEAD, csvRow, itemsText } from '../../src/cli/render/reconcile.ts'
import type { ReconcileItem } from '../../src/domain/failover.ts'

const NASTY = ['=1+1', '+1', '-1', '@x', "'=quoted", '\t=1', ' =1', 'a"b,c\nd', '\u001b[31mred', '\u202eleft', 'plain']

function item(text: string): ReconcileItem {
  return {
    ...{ runId: 'run-1', id: 'event-1', key: text, kind: 'event', subject: text, content: { payload: text, [text]: 1 } },
    ...{ foundAt: '2026-01-01T00:00:00.000Z', decision: 'dropped', reason: text, decidedAt: null, decidedBy: text },
  }
}

/** RFC 4180, as a spreadsheet reads it. */
function parse(line: string): readonly string[] {
  return [...line.replace(/\r\n$/, '').matchAll(/"((?:[^"]|"")*)"(?:,|$)/g)].map(m => (m[1] ?? '').replaceAll('""', '"'))
}

test.each(NASTY)('a cell of %j is no formula, acts on no terminal, and its content comes back as it was', text => {
  const line = csvRow(item(text))
  const cells = parse(line)
  expect(cells).toHaveLength(parse(CSV_HEAD).length)
  for (const cell of cells) expect(cell).not.toMatch(/^\s*[=+\-@]/)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that there are none is what is held
  expect(line.replace(/\r\n$/, '')).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e]/)
  expect(JSON.parse(cells.at(-1) ?? '')).toEqual({ key: text, content: item(text).content })
})

test.each(NASTY)('a table with %j has one line an item, and nothing that a terminal acts on', text => {
  const lines = itemsText([item(text)]).split('\n')
  expect(lines).toHaveLength(2)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that there are none is what is held
  expect(lines[1]).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/)
})
