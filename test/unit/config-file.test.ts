import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { NO_FAILOVER } from '../../sandbox/config-defaults.ts'
import { configJsonSchema, findConfig, loadConfig } from '../../src/adapters/files/config-file.ts'
import { splitTable } from '../../src/adapters/files/config-map.ts'
import { codedError } from './coded-error.ts'
import { SAMPLE } from './config-sample.ts'
import { temporaryFolder } from './temporary-folder.ts'

// The first test of a file also loads what it tests; on a busy machine that alone takes seconds.
vi.setConfig({ testTimeout: 30_000 })

function load(text: string | Uint8Array, env: Record<string, string> = {}, flags: { controlPlane?: string } = {}) {
  const cwd = temporaryFolder({ 'homeregion.yaml': text })
  return { cwd, ...loadConfig({ env, flags, cwd }) }
}

const RPO = 'must be never, any, or a whole number with its unit: 30s'

/** The report for the sample with one piece of text replaced. */
async function reportOf(from: string, to: string, env: Record<string, string> = {}): Promise<string> {
  expect(SAMPLE).toContain(from)
  const error = await codedError(() => load(SAMPLE.replace(from, to), env))
  expect(error.code).toBe('config-invalid')
  return error.report
}

describe('the configuration', () => {
  test('is mapped with its defaults', () => {
    const { config, cwd } = load(SAMPLE)
    expect(config.topology).toBe('independent')
    expect(config.regions.map(region => region.name)).toEqual(['region-a', 'region-b'])
    expect(config.regions[0]?.database.operator.password).toEqual({ file: join(cwd, 'secrets/a') })
    expect(config.regions[0]?.database.writers[0]?.role).toBe('app_writer')
    expect(config.guarded).toEqual([
      { schema: 'public', table: 'account', key: 'tenant_id', guard: 'row', versions: { aggregate: 'account_id', version: 'version' } },
    ])
    expect(config.outbox.columns).toMatchObject({ key: 'tenant_id', eventId: 'event_id', payload: 'payload', publishedAt: 'published_at' })
    expect(config.inbox.columns).toEqual({ key: 'tenant_id', eventId: 'event_id', ownerEpoch: 'owner_epoch', appliedAt: 'applied_at' })
    expect(config.policy).toEqual({
      ...NO_FAILOVER.policy,
      maxKeys: 100,
      evidenceMaxAgeMs: 5_000,
      runLeaseMs: 15_000,
      callTimeoutMs: 3_000,
    })
  })

  test('lets nothing be lost unless it says what', () => {
    const { config } = load(`${SAMPLE.replace('policy:\n', 'policy:\n  loss: [{ keys: "eu-*", rpo: 30s }, { keys: "*", rpo: any }]\n')}`)
    expect(config.policy.loss).toEqual([
      { keys: 'eu-*', rpo: { atMostMs: 30_000 } },
      { keys: '*', rpo: 'any' },
    ])
  })

  test.each([
    ['*', 'vip-*'],
    ['vip-*', 'vip-*'],
    ['vip-*', 'vip-7'],
    ['*-eu-*', 'vip-eu-*'],
  ])('a loss rule that an earlier one covers is refused with both lines: %s, %s', async (first, second) => {
    const rules = `policy:\n  loss:\n    - { keys: "${first}", rpo: any }\n    - { keys: "${second}", rpo: never }`
    expect(await reportOf('policy:', rules)).toContain(
      `homeregion.yaml:26:7: policy.loss[1]: never reached: policy.loss[0] \`${first}\` comes first (line 25)`,
    )
  })

  test.each([
    ['vip-*', '*'],
    ['vip-*', 'vip*'],
    ['a-*-b', 'a-*'],
  ])('a loss rule that an earlier one covers in part is taken: %s, %s', (first, second) => {
    const rules = `policy:\n  loss: [{ keys: "${first}", rpo: never }, { keys: "${second}", rpo: any }]`
    expect(load(SAMPLE.replace('policy:', rules)).config.policy.loss).toHaveLength(2)
  })

  test('with Debezium has no published_at column unless it names one', () => {
    const { config } = load(`${SAMPLE}transport: { relay: debezium }\n`)
    expect(config.outbox.columns.publishedAt).toBeNull()
  })

  test('takes flags before environment before file, and knows where each value came from', () => {
    const env = { HOMEREGION_CALL_TIMEOUT: '4s', HOMEREGION_CONTROL_PLANE_URL: 'postgres://e@env:1/db', HOMEREGION_MAX_KEYS: '7' }
    const { config, origins } = load(SAMPLE, env, { controlPlane: 'postgres://f@flag:1/db' })
    expect(config.controlPlane.operator.url).toBe('postgres://f@flag:1/db')
    expect(config.policy).toMatchObject({ callTimeoutMs: 4_000, maxKeys: 7 })
    expect(origins(['controlPlane', 'url'])).toEqual({ from: 'flag', name: '--control-plane' })
    expect(origins(['policy', 'callTimeout'])).toEqual({ from: 'environment', name: 'HOMEREGION_CALL_TIMEOUT' })
    expect(origins(['policy', 'runLease'])).toEqual({ from: 'default' })
    expect(origins(['regions', 'region-b', 'kafka', 'brokers'])).toEqual({ from: 'file', file: 'homeregion.yaml', line: 17 })
  })

  test('an empty variable counts as not set', () => {
    expect(load(SAMPLE, { HOMEREGION_CALL_TIMEOUT: '' }).config.policy.callTimeoutMs).toBe(3_000)
  })

  test('a wrong variable is reported under its own name', async () => {
    const error = await codedError(() => load(SAMPLE, { HOMEREGION_CALL_TIMEOUT: '4' }))
    expect(error.report).toBe('HOMEREGION_CALL_TIMEOUT: policy.callTimeout: must be a number with its unit: 500ms, 30s, 5m')
  })
})

describe('a wrong configuration is reported with place, line, caret and the word that was meant', () => {
  test('unknown key', async () => {
    expect(await reportOf('callTimeout', 'callTimout')).toBe(
      [
        'homeregion.yaml:24:3: policy: unknown key "callTimout"',
        '   24 |   callTimout: 3s',
        '      |   ^',
        '  hint: did you mean "callTimeout"?',
      ].join('\n'),
    )
  })

  test('wrong value, in the middle of a line', async () => {
    expect(await reportOf('table: public.account', 'table: a b')).toBe(
      [
        'homeregion.yaml:19:14: tables[0].table: must be schema.table (a part with a dot or a space in it is put in double quotes)',
        '   19 |   - { table: a b, key: tenant_id, version: { aggregate: account_id, column: version } }',
        '      |              ^',
      ].join('\n'),
    )
  })

  test('missing key, at the mapping it is missing from', async () => {
    expect(await reportOf('outbox: { table: public.outbox, key: tenant_id }', 'outbox: { table: public.outbox }')).toBe(
      ['homeregion.yaml:20:1: outbox.key: is missing', '   20 | outbox: { table: public.outbox }', '      | ^'].join('\n'),
    )
  })

  test.each([
    ['duplicate key', 'service: billing', 'service: billing\nservice: b', ':2:1: this key stands here twice'],
    ['anchor', 'service: billing', 'service: &x billing', 'anchors (&name) are not allowed'],
    ['alias', 'service: billing', 'service: *x', ':1:10: aliases (*name) are not allowed'],
    ['merge key', 'service: billing', '<<: {}\nservice: billing', ':1:1: merge keys (<<) are not allowed'],
    ['tag', 'service: billing', 'service: !secret billing', 'tags (!name) are not allowed'],
    ['second document', 'service: billing', 'service: billing\n---\na: 1', 'a second document begins here'],
    ['directive', 'service: billing', '%YAML 1.1\n---\nservice: billing', 'YAML directives are not allowed'],
    ['bidirectional control', 'service: billing', 'service: bil\u202eling # x', 'the character U+202E is not allowed'],
    ['broken YAML', 'service: billing', 'service: "billing', 'not valid YAML'],
    ['region name', '  region-b:', '  Region_B:', ':12:3: regions.Region_B: is no region name'],
    [
      'no writers',
      '\n        - { url: postgres://app_writer@a:5432/app, password: { env: WRITER_A } }',
      ' []',
      'needs at least one writer',
    ],
    ['same database twice', 'operator@b:5432', 'operator@a:5432', 'is the database of region-a as well'],
    ['no URL', 'postgres://operator@b:5432/app', 'b:5432', 'is not a postgres:// URL'],
    ['no user', 'operator@b:5432', 'b:5432', 'names no user'],
    ['no database', 'operator@b:5432/app', 'operator@b:5432', 'names no database'],
    ['unknown home', 'policy:', 'ownership: { defaultHome: region-x }\npolicy:', '"region-x" is not a region'],
    [
      'table twice',
      'tables:\n',
      'tables:\n  - { table: account, key: tenant_id }\n',
      ':20:14: tables[1].table: this table is listed already',
    ],
    ['lease too short', 'callTimeout: 3s', 'callTimeout: 20s', 'policy.runLease: must be longer than policy.callTimeout'],
    ['bare number', 'callTimeout: 3s', 'callTimeout: 3', 'policy.callTimeout: expected a text, found a number'],
    ['dark at once', 'policy:', 'policy:\n  darkAfter: 0s', ':24:14: policy.darkAfter: 0s is too short: at least 2s'],
    [
      'dark between two looks',
      'policy:',
      'agent: { observeEvery: 20s }\npolicy:\n  darkAfter: 30s',
      'policy.darkAfter: 30s is too short: at least 40s',
    ],
    ['token that is over at once', 'policy:', 'policy:\n  ackToken: 0s', 'policy.ackToken: 0s is too short: at least 10s'],
    ['token for ever', 'policy:', 'policy:\n  ackToken: 999h', 'policy.ackToken: must be at most 24h'],
    ['no cool-down', 'policy:', 'policy:\n  coolDown: 0s', 'policy.coolDown: 0s is too short: at least 1s'],
    ['no looks', 'policy:', 'agent: { observeEvery: 0s }\npolicy:', 'agent.observeEvery: 0s is too short: at least 100ms'],
    [
      'an approver twice',
      'policy:',
      'policy:\n  approvals: { approvers: [alice, bob, alice], needed: 2 }',
      ':24:40: policy.approvals.approvers[2]: "alice" is listed twice',
    ],
    [
      'one person for two approvals',
      'policy:',
      'policy:\n  approvals: { approvers: [alice, alice], needed: 2 }',
      'policy.approvals.needed: asks for 2 approvals, 1 may give one',
    ],
    [
      'approvals of nobody',
      'policy:',
      'policy:\n  approvals: { needed: 2 }',
      'policy.approvals.needed: asks for 2 approvals, nobody may give one',
    ],
    ['a word that is no limit', 'policy:', 'policy:\n  loss: [{ keys: a, rpo: Never }]', `rpo: ${RPO}`],
    ['a limit without a unit', 'policy:', 'policy:\n  loss: [{ keys: a, rpo: 30 }]', `rpo: ${RPO}`],
    ['a comparison', 'policy:', 'policy:\n  loss: [{ keys: a, rpo: "<= 30s" }]', `rpo: ${RPO}`],
    ['no limit', 'policy:', 'policy:\n  loss: [{ keys: a }]', `rpo: is missing: ${RPO}`],
    ['no section', 'inbox: { table: public.inbox, key: tenant_id }', 'inbox:', 'inbox: expected a mapping, found nothing'],
  ])('%s', async (_case, from, to, message) => {
    expect(await reportOf(from, to)).toContain(message)
  })

  test('an empty text is that, and nothing else', async () => {
    const report = await reportOf('policy:', 'ownership: { topic: "" }\npolicy:')
    expect(report.match(/must .*/g)).toEqual(['must not be empty'])
  })

  describe('topology: shared', () => {
    const shared = SAMPLE.replaceAll('@b:5432', '@a:5432').replace('service: billing', 'service: billing\ntopology: shared')
    const own = shared.replace(/app_writer@a:5432\/app, password: \{ env: WRITER_B/, 'writer_b@a:5432/app, password: { env: WRITER_B')
    const report = async (text: string) => (await codedError(() => load(text))).report

    test('takes regions whose writers differ', () => {
      expect(load(own).config.topology).toBe('shared')
    })

    test('refuses a writer of two regions, at the second', async () => {
      expect(await report(shared)).toContain(
        'homeregion.yaml:17:18: regions.region-b.database.writers[0].url: "app_writer" writes for region-a already',
      )
    })

    test('refuses a role that is not the login, and a default home', async () => {
      expect(await report(own.replace('{ env: WRITER_B }', '{ env: WRITER_B }, role: other'))).toContain(
        'writers[0].role: is not the user of its url',
      )
      expect(await report(own.replace('policy:', 'ownership: { defaultHome: region-a }\npolicy:'))).toContain(
        'shared knows no default home',
      )
    })
  })

  test('one region is not enough', async () => {
    const from = SAMPLE.indexOf('  region-b:')
    const error = await codedError(() => load(SAMPLE.slice(0, from) + SAMPLE.slice(SAMPLE.indexOf('tables:'))))
    expect(error.report).toContain('there must be at least two regions, there is 1')
  })

  test('every problem is in one report, in the order of the file', async () => {
    const broken = SAMPLE.replace('service: billing', 'service: 5')
      .replace('callTimeout: 3s', 'callTimeout: x')
      .replace('  region-b:', '  B:')
    const error = await codedError(() => load(broken))
    expect(error.text.fact).toBe('homeregion.yaml cannot be used: 3 problems')
    expect(error.report.match(/homeregion\.yaml:\d+/g)).toEqual(['homeregion.yaml:1', 'homeregion.yaml:12', 'homeregion.yaml:24'])
  })

  test.each([
    ['empty', '', 'the file is empty'],
    ['not UTF-8', new Uint8Array([0x61, 0x3a, 0x20, 0xff]), ':1:4: is not UTF-8 text'],
    ['over a megabyte', '#'.repeat(1_000_001), 'is too large: 1000001 bytes, the limit is 1000000'],
    ['bottomless', '['.repeat(100_000), 'is nested too deeply'],
    ['a list', '- a\n', 'expected a mapping, found a list'],
  ])('%s', async (_case, text, message) => {
    const error = await codedError(() => load(text))
    expect(error.code).toBe('config-invalid')
    expect(error.report).toContain(message)
  })
})

describe('a secret in the wrong place is refused and never shown', () => {
  test.each([
    ['in a URL', 'postgres://operator@b:5432/app', 'postgres://operator:hunter2@b:5432/app'],
    ['with an @ in it, in a URL', 'postgres://operator@b:5432/app', 'postgres://operator:hunter2@x@b:5432/app'],
    ['as a URL parameter', 'operator@b:5432/app', 'operator@b:5432/app?password=hunter2'],
    ['as text', '{ env: OPERATOR_B }', 'hunter2'],
    ['as quoted text', '{ env: OPERATOR_B }', '"hunter2, and more"'],
    ['as the value of an unknown kind', '{ env: OPERATOR_B }', '{ value: hunter2 }'],
    ['as a key', '{ env: OPERATOR_B }', '{ hunter2: }'],
    ['as a list', '{ env: OPERATOR_B }', '[hunter2]'],
    ['as the name of a variable', '{ env: OPERATOR_B }', '{ env: "hunter2!" }'],
    ['behind an alias', '{ env: OPERATOR_B }', '*hunter2'],
    ['behind a tag', '{ env: OPERATOR_B }', '!hunter2 x'],
    [
      'beside another mistake of the line',
      'operator: { url: postgres://operator@b:5432/app',
      'operator: { usr: x, url: postgres://operator:hunter2@b:5432/app',
    ],
  ])('%s', async (_case, from, to) => {
    const error = await codedError(() => load(SAMPLE.replace(from, to)))
    expect(error.code).toBe('config-invalid')
    expect(JSON.stringify([error.text, error.fields, error.stack])).not.toContain('hunter2')
  })

  test('the caret still points at the place when something before it is masked', async () => {
    const report = await reportOf('password: { env: OPERATOR_B } }', 'password: a-long-secret, usr: x }')
    expect(report).toContain('password: ***, usr: x }')
    const [, excerpt = '', caret = ''] = report.slice(report.indexOf('unknown key "usr"')).split('\n')
    expect(excerpt[caret.indexOf('^')]).toBe('u')
  })

  test('on the command line', async () => {
    const error = await codedError(() => load(SAMPLE, {}, { controlPlane: 'postgres://u:hunter2@h/db' }))
    expect(error.report).toContain('--control-plane: controlPlane.url: a password may not stand in a URL')
    expect(error.report).not.toContain('hunter2')
  })
})

describe('where the configuration is found', () => {
  const nothing = { env: {}, flags: {} }

  test('--config goes before HOMEREGION_CONFIG before homeregion.yaml', () => {
    const cwd = temporaryFolder({ 'homeregion.yaml': '', 'a.yaml': '', 'b.yaml': '' })
    expect(findConfig({ ...nothing, cwd })).toBe(join(cwd, 'homeregion.yaml'))
    expect(findConfig({ ...nothing, env: { HOMEREGION_CONFIG: 'b.yaml' }, cwd })).toBe(join(cwd, 'b.yaml'))
    expect(findConfig({ ...nothing, env: { HOMEREGION_CONFIG: 'b.yaml' }, file: 'a.yaml', cwd })).toBe(join(cwd, 'a.yaml'))
  })

  test('a folder above is searched up to the git root, and no further', async () => {
    const top = temporaryFolder({ 'homeregion.yaml': '' })
    const deep = join(top, 'repo', 'a', 'b')
    mkdirSync(deep, { recursive: true })
    mkdirSync(join(top, '.git'))
    expect(findConfig({ ...nothing, cwd: deep })).toBe(join(top, 'homeregion.yaml'))
    mkdirSync(join(top, 'repo', '.git'))
    expect((await codedError(() => findConfig({ ...nothing, cwd: deep }))).code).toBe('config-not-found')
  })

  test('a named file that is not there is said with who named it', async () => {
    const error = await codedError(() => findConfig({ env: { HOMEREGION_CONFIG: '/nowhere.yaml' }, flags: {}, cwd: '/' }))
    expect(error.text.fact).toBe('there is no configuration file /nowhere.yaml (from HOMEREGION_CONFIG)')
  })
})

test.each([
  ['account', { schema: 'public', table: 'account' }],
  ['app.Account', { schema: 'app', table: 'Account' }],
  ['"My Schema"."odd.table"', { schema: 'My Schema', table: 'odd.table' }],
  ['app."say ""hi"""', { schema: 'app', table: 'say "hi"' }],
])('the table name %s', (written, split) => {
  expect(splitTable(written)).toEqual(split)
})

test('each place of the JSON Schema has its own words', () => {
  const schema = JSON.stringify(configJsonSchema())
  const placed = [...schema.matchAll(/"(\w+)":\{[^{}]*"description":"postgres:/g)].map(found => found[1])
  expect(new Set(placed)).toEqual(new Set(['url']))
  expect(schema).toContain('The first match counts')
})

test('the JSON Schema knows the required keys', () => {
  expect(configJsonSchema()).toMatchObject({ required: ['service', 'controlPlane', 'regions', 'tables', 'outbox', 'inbox'] })
})
