import { Writable } from 'node:stream'
import { describe, expect, test, vi } from 'vitest'
import { scanGlobals } from '../../src/cli/globals.ts'
import { run } from '../../src/cli/program.ts'
import { asCoded, printable } from '../../src/cli/render/error.ts'
import { EXIT } from '../../src/domain/exit-codes.ts'
import { TRANSITIONS } from '../../src/domain/ownership.ts'
import { SAMPLE } from './config-sample.ts'
import { temporaryFolder } from './temporary-folder.ts'

// The first test of a file also loads what it tests; on a busy machine that alone takes seconds.
vi.setConfig({ testTimeout: 30_000 })

type Result = { readonly code: number; readonly stdout: string; readonly stderr: string }

async function cli(argv: readonly string[], env: Record<string, string> = {}, cwd = '/'): Promise<Result> {
  const text = { stdout: '', stderr: '' }
  const stream = (name: 'stdout' | 'stderr') =>
    new Writable({
      write(chunk, _encoding, done) {
        text[name] += String(chunk)
        done()
      },
    })
  const code = await run(argv, { stdout: stream('stdout'), stderr: stream('stderr'), env, cwd })
  return { code, ...text }
}

describe('the command line', () => {
  test('prints an error as three lines on stderr and nothing on stdout', async () => {
    expect(await cli(['config', 'show'])).toEqual({
      code: 78,
      stdout: '',
      stderr: [
        'error: no homeregion.yaml in / or above it, up to the git root',
        'state: Nothing was read or changed.',
        'next:  export HOMEREGION_CONFIG=FILE   (or give --config FILE)',
        '',
      ].join('\n'),
    })
  })

  test.each([[['-o', 'json']], [['--output', 'json']], [['--output=json']], [['-ojson']]])(
    'prints it as one JSON object with %j',
    async words => {
      const { code, stdout, stderr } = await cli(['config', 'show', ...words])
      expect(code).toBe(78)
      expect(stdout).toBe('')
      expect(JSON.parse(stderr)).toMatchObject({ error: { code: 'config-not-found', exit: 78, state: 'Nothing was read or changed.' } })
    },
  )

  test.each([
    ['approve', 'run-1', '--reason', 'x\n  approved: bob'],
    ['fence', 'apply', 'region-a', '--reason', 'x\u001b[2Jy'],
    ['failover', '--force', '--attest', 'x\ry'],
    ['transfer', 'k', '--to', 'region-b', '--reason', 'x\u2028y'],
  ])('what a person says is one line of plain text: %s %s', async (...argv) => {
    const { code, stderr } = await cli(argv)
    expect(code, stderr).toBe(64)
    expect(stderr).toMatch(/^error: --(reason|attest) has a line break or a control character in it\nstate: Nothing was read/)
  })

  test('a problem of a file is in the JSON with its place', async () => {
    const cwd = temporaryFolder({ 'homeregion.yaml': SAMPLE.replace('service: billing', 'servce: billing') })
    const { stderr } = await cli(['config', 'validate', '-o', 'json'], {}, cwd)
    expect(JSON.parse(stderr)).toMatchObject({
      error: {
        code: 'config-invalid',
        fields: {
          problems: [
            { line: 1, column: 1 },
            { message: 'unknown key "servce"', hint: 'did you mean "service"?' },
          ],
        },
      },
    })
  })

  test.each([
    [[], 'no command given'],
    [['statess'], "unknown command 'statess' (Did you mean states?)"],
    [['config'], 'homeregion config needs a subcommand'],
    [['config', 'shw'], "unknown command 'shw' (Did you mean show?)"],
    [['states', '--fast'], "unknown option '--fast'"],
    [['states', 'extra'], 'too many arguments'],
    [['states', '--color', 'blue'], 'Allowed choices are auto, always, never'],
    [['states', '--config'], 'argument missing'],
    [['states', '-o', 'xml'], '-o xml is not offered here; there is text, json, mermaid'],
    [['help', 'nothing'], 'there is no command or topic "nothing"'],
    [['key', 'add', 'a'], "required option '--home <region>' not specified"],
    [['key', 'list', '--limit', '0'], 'whole number from 1'],
  ])('%j is wrong usage', async (argv, fact) => {
    const { code, stdout, stderr } = await cli(argv)
    expect({ code, stdout }).toEqual({ code: 64, stdout: '' })
    expect(stderr).toContain(fact)
  })

  test('--help of a verb is no error', async () => {
    const { code, stdout, stderr } = await cli(['states', '--help'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toContain('Usage: homeregion states')
  })

  test('an unexpected error says that it is one, and shows where only when asked', async () => {
    const coded = asCoded(new TypeError('x is undefined'))
    expect(coded.code).toBe('unexpected')
    expect(coded.text.fact).toBe('unexpected: x is undefined')
  })

  test('text from outside cannot move the cursor', () => {
    expect(printable('a\u001b[2Jb\u202ec\nd')).toBe('a\\u{1b}[2Jb\\u{202e}c\nd')
  })

  test('colour is put on stderr only when it is asked for', async () => {
    expect((await cli(['config', 'show'])).stderr).not.toContain('\u001b[')
    expect((await cli(['config', 'show', '--color', 'always'])).stderr).toContain('\u001b[31merror:')
    expect((await cli(['config', 'show'], { FORCE_COLOR: '1' })).stderr).toContain('\u001b[')
  })

  test('a reader that goes away early ends nothing', async () => {
    const broken = () =>
      new Writable({
        write(_chunk, _encoding, done) {
          done(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
        },
      })
    expect(await run(['states'], { stdout: broken(), stderr: broken(), env: {}, cwd: '/' })).toBe(0)
  })
})

describe('what is printed is derived from its table', () => {
  test('help exit-codes', async () => {
    const { stdout } = await cli(['help', 'exit-codes'])
    for (const { code, meaning } of Object.values(EXIT))
      expect(stdout).toMatch(new RegExp(`^${code} +${meaning.replace(/[()]/g, '\\$&')}$`, 'm'))
  })

  test('states, as table, JSON and Mermaid', async () => {
    const [text, json, mermaid] = await Promise.all([cli(['states']), cli(['states', '-o', 'json']), cli(['states', '-o', 'mermaid'])])
    for (const { name, sentence } of TRANSITIONS) {
      expect(text.stdout).toMatch(new RegExp(`^${name} .*${sentence}$`, 'm'))
      expect(mermaid.stdout).toContain(`: ${name}`)
    }
    expect(JSON.parse(json.stdout)).toMatchObject({ transitions: TRANSITIONS })
  })
})

describe('config show', () => {
  test('prints a configuration that reads back as the same, with where each value came from', async () => {
    const cwd = temporaryFolder({ 'homeregion.yaml': SAMPLE })
    const first = await cli(['config', 'show'], { HOMEREGION_RUN_LEASE: '20s' }, cwd)
    expect(first.code).toBe(0)
    expect(first.stdout).toMatch(/^service: billing +# homeregion\.yaml:1$/m)
    expect(first.stdout).toMatch(/^ {2}runLease: 20s +# env HOMEREGION_RUN_LEASE$/m)
    expect(first.stdout).toMatch(/^ {2}maxKeys: 100 +# default$/m)
    expect(first.stdout).toMatch(/^ {2}password: \{ env: CONTROL_PASSWORD \} +# homeregion\.yaml:4$/m)
    const again = await cli(['config', 'show', '-o', 'json'], {}, temporaryFolder({ 'homeregion.yaml': first.stdout }))
    const original = await cli(['config', 'show', '-o', 'json'], { HOMEREGION_RUN_LEASE: '20s' }, cwd)
    const config = ({ stdout }: Result) => (JSON.parse(stdout) as { config: unknown }).config
    expect(config(again)).toEqual(config(original))
  })

  test('never reads a secret', async () => {
    const cwd = temporaryFolder({ 'homeregion.yaml': SAMPLE })
    const { stdout } = await cli(['config', 'show', '-o', 'json'], { CONTROL_PASSWORD: 'hunter2', WRITER_A: 'hunter2' }, cwd)
    expect(stdout).not.toContain('hunter2')
  })
})

describe('the look at the raw arguments', () => {
  test.each([
    [['status'], { verb: 'status', output: 'text', color: 'auto' }],
    [['--config', 'x', 'status'], { verb: 'status', output: 'text', color: 'auto' }],
    [['--config=x', '--color=never', 'status'], { verb: 'status', output: 'text', color: 'never' }],
    [['key', 'show', '--', '-o'], { verb: 'key', output: 'text', color: 'auto' }],
    [['--help'], { verb: undefined, output: 'text', color: 'auto' }],
    [['--color', 'blue', '-o'], { verb: undefined, output: 'text', color: 'auto' }],
  ])('%j', (argv, found) => {
    expect(scanGlobals(argv)).toEqual(found)
  })
})
