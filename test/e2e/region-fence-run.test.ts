import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse, stringify } from 'yaml'
import type { SandboxRegion } from '../../sandbox/layout.ts'
import type { CliResult } from '../rig/cli.ts'
import { type Rig, startRig } from '../rig/rig.ts'
import { commitDirect, directWrite, epochIn } from './direct-write.ts'
import { shippedText, stepBefore } from './runbooks.ts'
import { eventually, runIdOf, stopped } from './scene.ts'

// A rig of its own: a whole region is fenced here. The sandbox's own keys are at home in region-a, so region-b has these alone.
const KEYS = ['region-one', 'region-two'] as const
const dir = mkdtempSync(join(tmpdir(), 'homeregion-region-fence-'))
let rig: Rig

const seal = (fences: string) =>
  `  - id: seal\n    title: Fence what is left behind\n    action: { fence: { region: [${fences}] } }\n    gate: [ fence-holds ]\n    within: 30s`

function runbook(...steps: readonly (readonly [string, string])[]): string {
  const file = join(mkdtempSync(join(dir, 'book-')), 'runbook.yaml')
  writeFileSync(
    file,
    steps.reduce((text, [from, to]) => text.replace(from, to), shippedText()),
  )
  return file
}

const ALL = ['boundary', 'read-only', 'credentials'].join(', ')

async function move(
  keys: readonly string[],
  to: SandboxRegion,
  book: string,
  more: readonly string[] = ['--observe', '0s'],
): Promise<CliResult> {
  return await rig.cli(
    [
      'transfer',
      ...keys,
      '--to',
      to,
      '--runbook',
      book,
      ...(keys.length === 1 ? ['--confirm', keys[0] ?? ''] : ['--confirm-count', String(keys.length)]),
      ...more,
    ],
    {
      timeoutMs: 170_000,
    },
  )
}

async function fenceStates(region: SandboxRegion): Promise<Record<string, string>> {
  const { stdout } = await rig.cli(['fence', 'status', region, '-o', 'json'])
  const looks = JSON.parse(stdout) as readonly { fence: { name: string }; status: { state: string } }[]
  return Object.fromEntries(looks.map(({ fence, status }) => [fence.name, status.state]))
}

async function tryWrite(key: string, region: SandboxRegion): Promise<string | null> {
  try {
    const writer = await rig.pg(region, 'app_writer')
    return (await commitDirect(writer, directWrite(key, region, await epochIn(writer, key)))).sqlstate
  } catch (error) {
    return (error as { code?: string }).code ?? String(error)
  }
}

beforeAll(async () => {
  rig = await startRig()
  const added = await rig.cli(['key', 'add', ...KEYS, '--home', 'region-b'])
  expect(added.code, added.stderr).toBe(0)
}, 240_000)

afterAll(async () => {
  await rig.stop()
})

describe('a run that fences the region its last key leaves', () => {
  it('is refused while a key stays behind', async () => {
    const end = await move([KEYS[0]], 'region-a', runbook(stepBefore('activate', seal('boundary'))))
    expect(end.code, end.stdout + end.stderr).toBe(4)
    expect(end.stderr).toContain('1 other key stays there')
  })

  it('goes back as a whole when a step after the fences fails: they are lifted first, and the writers come in again', async () => {
    const failing = '  - id: fails\n    title: Fails\n    action: { exec: { command: ["false"], timeout: 5s } }'
    const book = runbook(stepBefore('activate', `${seal(ALL)}\n${failing}`))
    const end = await move(KEYS, 'region-a', book)
    // The canary goes back before the region is fenced, since its neighbour is still at home; the other is never begun.
    expect(end.code, end.stdout + end.stderr).toBe(6)
    expect(end.stdout + end.stderr).toContain('was not fenced as a whole')
    expect(await tryWrite(KEYS[0], 'region-b')).toBeNull()
  })

  it('fences it when the last key has caught up, activates on the proof of all fences, and leaves them standing', async () => {
    const end = await move(KEYS, 'region-a', runbook(stepBefore('activate', seal(ALL))))
    expect(end.code, end.stdout + end.stderr).toBe(0)
    expect(await fenceStates('region-b')).toMatchObject({ boundary: 'applied', 'read-only': 'applied', credentials: 'applied' })
    for (const key of KEYS) {
      expect(await tryWrite(key, 'region-b')).toMatch(/^28/)
      expect(await tryWrite(key, 'region-a')).toBeNull()
    }
  })

  it('cannot come back before the fences are lifted, and can afterwards', async () => {
    const plain = runbook()
    const refused = await move([KEYS[0]], 'region-b', plain)
    expect(refused.code, refused.stdout + refused.stderr).toBe(3)
    expect(refused.stdout + refused.stderr).toMatch(/region-b.*fenced/)
    const lifted = await rig.cli(['fence', 'lift', 'region-b', '--reason', 'moves back', '--as-target', '--yes'], { timeoutMs: 120_000 })
    expect(lifted.code, lifted.stdout + lifted.stderr).toBe(0)
    const back = await move([KEYS[0]], 'region-b', plain)
    expect(back.code, back.stdout + back.stderr).toBe(0)
    expect(await tryWrite(KEYS[0], 'region-b')).toBeNull()
  })

  it('a target that is fenced as a whole after the preflight is handed nothing, and the key goes back', async () => {
    const run = rig.startCli(['transfer', KEYS[0], '--to', 'region-a', '--confirm', KEYS[0], '--observe', '0s'], {
      timeoutMs: 170_000,
      env: { HOMEREGION_FAULT: 'stop@caught-up' },
    })
    await stopped(run)
    const boundary = async (verb: string) =>
      await rig.cli(['fence', verb, 'region-a', '--fence', 'boundary', '--yes', '--reason', 'meanwhile'], { timeoutMs: 120_000 })
    expect((await boundary('apply')).code).toBe(0)
    run.child.kill('SIGCONT')
    const end = await run.done
    expect(end.code, end.stdout + end.stderr).toBe(6)
    expect(end.stdout).toMatch(/was not handed over: region-a is fenced as a whole since .*meanwhile/)
    expect(await tryWrite(KEYS[0], 'region-b')).toBeNull()
    const lifted = await boundary('lift')
    expect(lifted.code, lifted.stdout + lifted.stderr).toBe(0)
  })

  it('a fence that somebody takes off before the activation stops the run, and the source writes again', async () => {
    const book = runbook(stepBefore('activate', seal('read-only')))
    const run = rig.startCli(['transfer', KEYS[0], '--to', 'region-a', '--runbook', book, '--confirm', KEYS[0], '--observe', '0s'], {
      timeoutMs: 170_000,
      env: { HOMEREGION_FAULT: 'stop@fence-region:read-only' },
    })
    await stopped(run)
    const owner = await rig.pg('region-b')
    await owner.query('grant insert, update on public.account to app_writer')
    run.child.kill('SIGCONT')
    const end = await run.done
    expect(end.code, end.stdout + end.stderr).toBe(6)
    expect(end.stdout + end.stderr).toMatch(/fence read-only/)
    expect(await tryWrite(KEYS[0], 'region-b')).toBeNull()
    expect(await fenceStates('region-b')).toMatchObject({ 'read-only': 'lifted' })
  })

  it('leaves a fence that a person asked for meanwhile, and does not call the source writable', async () => {
    const failing = '  - id: fails\n    title: Fails\n    action: { exec: { command: ["false"], timeout: 5s } }'
    const book = runbook(stepBefore('activate', `${seal('read-only')}\n${failing}`))
    const run = rig.startCli(['transfer', KEYS[0], '--to', 'region-a', '--runbook', book, '--confirm', KEYS[0], '--observe', '0s'], {
      timeoutMs: 170_000,
      env: { HOMEREGION_FAULT: 'stop@fence-region:read-only' },
    })
    await stopped(run)
    const person = await rig.cli(['fence', 'apply', 'region-b', '--fence', 'read-only', '--reason', 'incident', '--yes'], {
      timeoutMs: 120_000,
    })
    expect(person.code, person.stdout + person.stderr).toBe(0)
    run.child.kill('SIGCONT')
    const end = await run.done
    const said = end.stdout + end.stderr
    expect(end.code, said).toBe(7)
    expect(said).toMatch(/fence read-only of region-b is applied since .*\(incident\): this run leaves it/)
    expect(said).toContain('NOT verified that region-b can write it')
    expect(said).toContain('homeregion fence lift region-b --fence read-only')
    expect(await fenceStates('region-b')).toMatchObject({ 'read-only': 'applied' })
    expect(await tryWrite(KEYS[0], 'region-b')).not.toBeNull()
    const lift = ['fence', 'lift', 'region-b', '--fence', 'read-only', '--reason', 'over', '--yes']
    const lifted = await rig.cli(lift, { timeoutMs: 120_000 })
    expect(lifted.code, lifted.stdout + lifted.stderr).toBe(0)
    const aborted = await rig.cli(['abort', runIdOf(said)], { timeoutMs: 120_000 })
    expect(aborted.code, aborted.stdout + aborted.stderr).toBe(0)
    expect(await tryWrite(KEYS[0], 'region-b')).toBeNull()
  })

  it('killed between two fences, it is aborted to a region that writes again', async () => {
    const book = runbook(stepBefore('activate', seal('boundary, read-only')))
    const killed = await rig.cli(['transfer', KEYS[0], '--to', 'region-a', '--runbook', book, '--confirm', KEYS[0], '--observe', '0s'], {
      timeoutMs: 170_000,
      env: { HOMEREGION_FAULT: 'kill@fence-region:boundary' },
    })
    expect(killed.signal).toBe('SIGKILL')
    expect(await tryWrite(KEYS[0], 'region-b')).toMatch(/^HR00/)
    const aborted = await rig.cli(['abort', runIdOf(killed.stdout + killed.stderr)], { timeoutMs: 120_000 })
    expect(aborted.code, aborted.stdout + aborted.stderr).toBe(0)
    expect(await fenceStates('region-b')).toMatchObject({ boundary: 'lifted', 'read-only': 'lifted' })
    expect(await tryWrite(KEYS[0], 'region-b')).toBeNull()
  })

  it('a fence found lifted after the activation raises the alarm and ends with exit 7', async () => {
    const told = join(dir, 'alarm')
    const config = parse(readFileSync(rig.config, 'utf8')) as Record<string, unknown>
    const file = join(dir, 'alarm.yaml')
    writeFileSync(
      file,
      stringify(
        { ...config, alarm: { command: ['sh', '-c', `printf '%s %s' "$HOMEREGION_KEY" "$HOMEREGION_ALARM" > ${told}`] } },
        { aliasDuplicateObjects: false },
      ),
    )
    const book = runbook(stepBefore('activate', seal('read-only')))
    const run = rig.startCli(
      ['--config', file, 'transfer', KEYS[0], '--to', 'region-a', '--runbook', book, '--confirm', KEYS[0], '--observe', '60s'],
      { timeoutMs: 170_000 },
    )
    await eventually('the key is written at its target', async () => (await tryWrite(KEYS[0], 'region-a')) === null)
    const owner = await rig.pg('region-b')
    await owner.query('grant insert on public.account to app_writer')
    const end = await run.done
    expect(end.code, end.stdout + end.stderr).toBe(7)
    expect(end.stdout + end.stderr).toMatch(/fence read-only/)
    expect(existsSync(told)).toBe(true)
    expect((await rig.cli(['status'])).stdout).toMatch(/read-only.*FOUND LIFTED/)
    expect(readFileSync(told, 'utf8')).toMatch(/^region-one after activation: fence-holds: fail: .*read-only/)
  })
})
