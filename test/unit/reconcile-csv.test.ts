import { expect, test } from 'vitest'
import { CSV_HEAD, csvRow, itemText, keysText, sumUp } from '../../src/cli/render/reconcile.ts'
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

const SCREEN = { columns: 80, isTerminal: true }

test.each(NASTY)('the list with %j is nothing that a terminal acts on', text => {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that there are none is what is held
  for (const shown of [itemText(item(text), SCREEN), keysText(sumUp([item(text)]))])
    expect(shown).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e]/)
})

test('an item shows all that was written, and no line is wider than the screen', () => {
  const data = {
    street: 'a street whose name goes on and on and on, through the whole of the town and out of it',
    city: 'Ulm',
    token: 'x'.repeat(200),
  }
  const shown = itemText(
    { ...item('tenant-1'), decision: null, content: { occurredAt: '2026-03-01 03:00:00.5+01', payload: { data } } },
    SCREEN,
  )
  expect(shown.replace(/\s+/g, ' ')).toContain(data.street)
  expect(shown).toContain('city: Ulm')
  expect(shown).toMatch(/^ {2}kind {6}event, written 2026-03-01T02:00:00Z\n {2}decision {2}undecided$/m)
  expect(Math.max(...shown.split('\n').map(line => line.length))).toBeLessThanOrEqual(80)
})

test('the list leads with its keys: how many writes, from when to when, and how many nobody has decided', () => {
  const at = (id: string, occurredAt: string | null, decision: ReconcileItem['decision']): ReconcileItem => ({
    ...{ ...item('tenant-1'), id, decision },
    content: occurredAt === null ? { row: {} } : { occurredAt },
  })
  const items = [
    at('1', '2026-03-01 03:00:02+00', null),
    at('2', '2026-03-01 03:00:01+00', 'dropped'),
    at('3', null, null),
    at('4', '2026-03-01 03:00:03', null),
  ]
  expect(sumUp([...items, { ...item('tenant-2'), decision: null }])).toEqual([
    { key: 'tenant-1', writes: 4, undecided: 3, oldest: '2026-03-01T03:00:01Z', newest: '2026-03-01T03:00:03Z' },
    { key: 'tenant-2', writes: 1, undecided: 1, oldest: null, newest: null },
  ])
})
