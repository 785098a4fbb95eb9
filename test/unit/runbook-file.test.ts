import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import { loadRunbook, parsePinned, parseRunbook, shippedRunbooks } from '../../src/adapters/files/runbook-file.ts'
import { runbookMermaid } from '../../src/cli/render/runbook.ts'
import { codedError } from './coded-error.ts'
import { runbook, step } from './runbook-sample.ts'
import { temporaryFolder } from './temporary-folder.ts'

// The first test of a file also loads what it tests; on a busy machine that alone takes seconds.
vi.setConfig({ testTimeout: 30_000 })

const TRANSFER = readFileSync(packageFile('runbooks', 'transfer.yaml'), 'utf8')

async function reportOf(from: string, to: string): Promise<string> {
  expect(TRANSFER).toContain(from)
  const error = await codedError(() => parseRunbook(TRANSFER.replace(from, to), 'x.yaml'))
  expect(error.code).toBe('runbook-invalid')
  expect(error.exit).toBe('invalidData')
  return error.report
}

describe('shipped runbooks', () => {
  test.each(shippedRunbooks())('%s is valid, and named after its file', name => {
    expect(loadRunbook(name).runbook.name).toBe(name)
  })

  test('transfer is read with shorthands written out and durations in milliseconds', () => {
    const { runbook: transfer, text, sha256 } = loadRunbook('transfer')
    expect(transfer.steps.map(s => s.action?.kind ?? s.confirm ?? '-')).toEqual([
      '-',
      'type-key',
      'drain',
      '-',
      'fence',
      '-',
      'activate',
      '-',
    ])
    expect(transfer.steps[0]?.gate[4]).toEqual({ check: 'replication-behind', parameters: { atMost: 2_000 } })
    expect(transfer.steps[7]).toMatchObject({
      forMs: 300_000,
      watch: [{ check: 'fence-holds' }, { parameters: { settleWithin: 300_000 } }, {}],
    })
    expect(transfer.steps[1]?.withinMs).toBe(30_000)
    expect(sha256).toBe(createHash('sha256').update(text).digest('hex'))
  })

  test('what a run pinned reads back as the same, also where a younger rule would refuse it', () => {
    const pinned = loadRunbook('transfer')
    expect(parsePinned(pinned.text, 'run 1')).toEqual(pinned.runbook)
    const older = loadRunbook('failover').text.replace(/^ *- no-region-ahead.*\n/m, '')
    expect(() => parseRunbook(older, 'x.yaml')).toThrow(/1 problem/)
    expect(parsePinned(older, 'run 1').intent).toBe('failover')
  })
})

describe('actions of authors', () => {
  test('are read with their defaults', () => {
    const action = (yaml: string) =>
      parseRunbook(TRANSFER.replace('    confirm: type-key', `    action: ${yaml}\n    confirm: type-key`), 'x').runbook.steps[1]?.action
    expect(action('{ exec: { command: [kubectl, get, pods], timeout: 5s } }')).toEqual({
      kind: 'exec',
      command: ['kubectl', 'get', 'pods'],
      timeoutMs: 5_000,
    })
    expect(action('{ notify: { command: [say, hello] } }')).toEqual({ kind: 'notify', command: ['say', 'hello'], timeoutMs: 30_000 })
    expect(action('{ http: { url: "https://hooks/x" } }')).toEqual({
      kind: 'http',
      method: 'POST',
      url: 'https://hooks/x',
      timeoutMs: 10_000,
      expectStatus: 200,
    })
    expect(action('{ sql: { region: target, statement: "select $1", parameters: [key] } }')).toEqual({
      kind: 'sql',
      region: 'target',
      statement: 'select $1',
      parameters: ['key'],
    })
    expect(action('{ pause: 3s }')).toEqual({ kind: 'pause', forMs: 3_000 })
  })
})

describe('a malformed runbook is refused with place, line, caret and hint', () => {
  test('misspelt check', async () => {
    expect(await reportOf('[ fence-holds ]', '[ fence-hold ]')).toBe(
      [
        'x.yaml:32:13: steps[4].gate[0]: "fence-hold" is not known here',
        '   32 |     gate: [ fence-hold ]',
        '      |             ^',
        '  hint: did you mean "fence-holds"?',
      ].join('\n'),
    )
  })

  test('missing evidence, at the activation it leads to', async () => {
    expect(await reportOf('[ barrier-applied, versions-equal, idempotency-carried ]', '[ barrier-applied, idempotency-carried ]')).toBe(
      [
        'x.yaml:40:13: activation is reached without versions-equal',
        '   40 |     action: activate',
        '      |             ^',
        '  hint: add versions-equal to the gate of a step after the fence and before activate',
      ].join('\n'),
    )
  })

  test.each([
    ['misspelt action', 'action: drain', 'action: drane', '"drane" is not known here', 'did you mean "drain"?'],
    ['action without its mapping', 'action: drain', 'action: exec', '"exec" is not known here', 'action: { exec: … }'],
    ['action that is not there yet', 'action: drain', 'action: approval', '"approval" is not known here', 'confirm: type-key'],
    ['two actions', 'action: drain', 'action: { pause: 1s, exec: { command: [a] } }', 'must name exactly one action', ''],
    ['no action', 'action: drain', 'action: {}', 'must name exactly one action', ''],
    ['unknown parameter', 'atMost: 2s', 'atmost: 2s', 'unknown key "atmost"', 'did you mean "atMost"?'],
    ['count for a duration', 'atMost: 2s', 'atMost: 2', 'expected a text, found a number', ''],
    ['duration for a count', 'atMost: 0', 'atMost: 2s', 'expected a number, found a text', ''],
    [
      'unknown check with parameters',
      'writes-in-flight: {',
      'writes-in-fligt: {',
      'unknown key "writes-in-fligt"',
      'did you mean "writes-in-flight"?',
    ],
    ['number for a check', '[ fence-holds ]', '[ 5 ]', 'expected a name, found a number', 'one of regions-reachable'],
    ['empty gate', '[ fence-holds ]', '[]', 'must not be empty', ''],
    ['misspelt field', 'within: 15s', 'witin: 15s', 'unknown key "witin"', 'did you mean "within"?'],
    ['bare number for a deadline', 'within: 15s', 'within: 15', 'expected a text, found a number', ''],
    ['other version', 'homeregion/v1', 'homeregion/v2', '"homeregion/v2" is not known here', 'did you mean "homeregion/v1"?'],
    ['bad id', 'id: drain', 'id: Drain', 'must be lower-case', ''],
    ['escape in a title', 'Planned move of write ownership', '"\\x1b[31m"', 'must be one line without control characters', ''],
    ['shell text for a command', 'action: drain', 'action: { exec: { command: "rm -rf" } }', 'expected a list, found a text', ''],
    ['login in a URL', 'action: drain', 'action: { http: { url: "https://u:p@h" } }', 'without a login', ''],
    ['alias', 'action: drain', 'action: *x', 'aliases (*name) are not allowed', ''],
    ['anchor', 'action: drain', 'action: &x drain', 'anchors (&name) are not allowed', ''],
    ['tag', 'action: drain', 'action: !!str drain', 'tags (!name) are not allowed', ''],
    ['duplicate key', 'action: drain', 'action: drain\n    action: drain', 'this key stands here twice', ''],
    ['merge key', 'action: drain', '<<: { action: drain }', 'merge keys (<<) are not allowed', ''],
    ['second document', 'kind: Runbook', 'kind: Runbook\n---\nkind: Runbook', 'a second document begins here', ''],
    ['NUL', 'Planned move', 'Planned\u0000move', 'the character U+0000 is not allowed', ''],
    ['tab indentation', '    action: drain', '\taction: drain', 'not valid YAML', ''],
  ])('%s', async (_case, from, to, message, hint) => {
    const report = await reportOf(from, to)
    expect(report).toContain(message)
    expect(report).toContain(hint)
    expect(report).toMatch(/^x\.yaml:\d+:\d+: /)
  })

  test.each([
    ['empty', '', 'the file is empty'],
    ['a list', '- a', 'expected a mapping, found a list'],
    ['a word', 'runbook', 'expected a mapping, found a text'],
    ['over a megabyte', `# ${'x'.repeat(1_000_000)}`, 'is too large'],
    ['not UTF-8', new Uint8Array([0xff]), ':1:1: is not UTF-8 text'],
    ['bottomless', '{a: '.repeat(50_000), 'is nested too deeply'],
  ])('%s', async (_case, content, message) => {
    const folder = temporaryFolder({ 'x.yaml': content })
    const error = await codedError(() => loadRunbook(join(folder, 'x.yaml')))
    expect(error.code).toBe('runbook-invalid')
    expect(error.report).toContain(message)
  })

  test('every problem is reported, not only the first', async () => {
    const report = await codedError(() =>
      parseRunbook(
        TRANSFER.replace('action: drain', 'action: drane').replace('within: 15s', 'within: 15').replace('for: 5m', 'for: x'),
        'x.yaml',
      ),
    )
    expect(report.report.match(/^x\.yaml/gm)).toHaveLength(3)
  })

  test('a name that is not shipped is answered with the one that was meant', async () => {
    const error = await codedError(() => loadRunbook('tranfer'))
    expect(error.code).toBe('runbook-invalid')
    expect(error.text.fact).toContain('did you mean "transfer"?')
  })
})

test('a title cannot add nodes to the diagram', () => {
  const hostile = step('a', { gate: ['fence-holds'], action: { kind: 'exec', command: ['"]; b[x'], timeoutMs: 1 } })
  const lines = runbookMermaid(runbook([{ ...hostile, id: '"]\n  evil[x' }])).split('\n')
  expect(lines).toEqual(['flowchart TD', '  s1["#34;#93;#10;  evil#91;x<br/>exec"]', '  s1 -- "fence-holds" --> done([done])'])
})
