import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { afterEach, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import type { SandboxRegion } from '../../sandbox/layout.ts'
import { holds } from '../../sandbox/recorder.ts'
import type { CliOptions, CliResult } from '../rig/cli.ts'
import { atPort, configCopy, portOf, type WrittenConfig } from './config-copy.ts'
import { COMMAND_TIMEOUT_MS, eventually, stopped, useScene } from './scene.ts'
import { startTcpLink } from './tcp-link.ts'

const scene = useScene(['hand-load', 'hand-forged'])

const fence = async (args: readonly string[], options: CliOptions = {}): Promise<CliResult> =>
  await scene.rig.cli(['fence', ...args], { timeoutMs: COMMAND_TIMEOUT_MS, ...options })
const touched = new Set<SandboxRegion>()
const apply = async (region: SandboxRegion, more: readonly string[] = [], options: CliOptions = {}) => {
  touched.add(region)
  return await fence(['apply', region, '--reason', 'the night', '--yes', ...more], options)
}
const lift = async (region: SandboxRegion, more: readonly string[] = [], options: CliOptions = {}) =>
  await fence(['lift', region, '--reason', 'it is over', '--yes', ...more], options)
const said = (result: CliResult) => result.stdout + result.stderr
const secretOf = (region: SandboxRegion) => readFileSync(scene.rig.sandbox.secrets.file(`${region}.app_writer`), 'utf8')

/** Each test leaves the regions as it found them, whatever it saw. */
afterEach(async () => {
  for (const region of touched) await lift(region, ['--as-target'])
  touched.clear()
})

/** SQLSTATE of a login as the region's writer, or null when it is let in. */
async function login(region: SandboxRegion, password: string): Promise<string | null> {
  const url = new URL(scene.rig.running.regions[region].postgres.adminUrl)
  url.pathname = '/app'
  url.username = 'app_writer'
  url.password = password
  const client = new pg.Client({ connectionString: url.href, connectionTimeoutMillis: 5_000 })
  try {
    await client.connect()
    return null
  } catch (error) {
    return error instanceof pg.DatabaseError ? (error.code ?? 'none') : String(error)
  } finally {
    await client.end().catch(() => undefined)
  }
}

describe('a whole region, fenced by hand', () => {
  it('under load: from the end of the command on nothing is acknowledged there, and after the lift everything is as it was', async () => {
    const load = scene.rig.load({ tenants: [scene.key('hand-load')] })
    await eventually('the load writes', () => load.acks.length > 20)
    const open = await fence(['probe', 'region-a'])
    expect(open.code, said(open)).toBe(3)
    expect(open.stdout).toMatch(/ADMITTED in public\.account/)

    const old = secretOf('region-a')
    const applied = await apply('region-a')
    expect(applied.code, said(applied)).toBe(0)
    const acknowledged = load.acks.length
    for (const name of ['boundary', 'kafka', 'credentials', 'read-only'])
      expect(applied.stdout).toMatch(new RegExp(`^ok ${name} .*applied$`, 'm'))
    const probed = await fence(['probe', 'region-a'])
    expect(probed.code, said(probed)).toBe(0)
    const standing = await fence(['status', 'region-a', '-o', 'json'])
    type Look = { status: { state: string; cause: { reason: string; by: string } } }
    for (const { status } of JSON.parse(standing.stdout) as Look[])
      expect(status).toMatchObject({ state: 'applied', cause: { reason: 'the night', by: expect.stringContaining('@') as string } })
    const overview = await scene.rig.cli(['status'])
    expect(overview.stdout).toMatch(/fence credentials of region-a: stands, by .* \(the night\)/)
    expect(load.acks.length).toBe(acknowledged)
    expect(await login('region-a', old)).toMatch(/^28(000|P01)$/)

    const lifted = await lift('region-a')
    expect(lifted.code, said(lifted)).toBe(0)
    await eventually('the service writes again, with the new secret', () => load.acks.length > acknowledged + 20)
    await load.stop()
    expect(await scene.rig.verify(load.acks)).toSatisfy(holds)
    expect((await scene.rig.cli(['status'])).stdout).not.toContain('fence ')
    for (const output of [applied, probed, standing, lifted].map(said))
      for (const secret of [old, secretOf('region-a')]) expect(output).not.toContain(secret)
  })

  it('that is opened behind the back of its record is found, and stays an alarm until somebody acts', async () => {
    expect((await apply('region-a', ['--fence', 'boundary'])).code).toBe(0)
    const helpful = await scene.rig.pg('region-a')
    await helpful.query(`delete from homeregion.fence where region = 'region-a' and name = 'boundary'`)
    const found = await fence(['status', 'region-a'])
    expect(found.code, said(found)).toBe(3)
    expect(found.stdout).toContain('FOUND LIFTED')
    const overview = await scene.rig.cli(['status', '--exit-code'])
    expect(overview.code).toBe(2)
    expect(overview.stdout).toMatch(/fence boundary of region-a: FOUND LIFTED/)
    const probed = await fence(['probe', 'region-a'])
    expect(probed.code, said(probed)).toBe(3)
    expect((await apply('region-a', ['--fence', 'boundary'])).code).toBe(0)
    expect((await fence(['status', 'region-a'])).code).toBe(0)
  })

  it('whose writer is let in again by hand does not pass a probe', async () => {
    expect((await apply('region-a', ['--fence', 'credentials'])).code).toBe(0)
    await (await scene.rig.pg('region-a')).query('alter role app_writer login')
    const probed = await fence(['probe', 'region-a'])
    expect(probed.code, said(probed)).toBe(3)
  })
})

describe('without the control plane', () => {
  it('a region is fenced, the record waits on this machine, and nothing is lifted; the next command hands the record over', async () => {
    // The same address all night: what a machine kept is for the control plane it was made for.
    const link = await startTcpLink(portOf((parse(readFileSync(scene.rig.config, 'utf8')) as WrittenConfig).controlPlane))
    const config = configCopy(scene, c => {
      c.controlPlane = atPort(c.controlPlane, link.port)
    })
    const options = { env: { HOMEREGION_STATE_DIR: join(scene.dir, 'night'), HOMEREGION_CONFIG: config } }
    link.cut('broken')
    const applied = await apply('region-a', [], options)
    expect(applied.code, said(applied)).toBe(0)
    const file = join(scene.dir, 'night', 'sandbox.fences.jsonl')
    expect(applied.stderr).toMatch(/^control plane not reached \(.+\): recorded in /m)
    expect(applied.stderr).toContain(file)
    expect((await fence(['probe', 'region-a'], options)).code).toBe(0)
    const refused = await lift('region-a', [], options)
    expect(refused.code, said(refused)).toBe(69)
    expect(refused.stderr).toMatch(/^state: No fence of region-a was lifted/m)
    expect((await fence(['probe', 'region-a'], options)).code).toBe(0)

    // The morning after.
    link.restore()
    const status = await scene.rig.cli(['status'], options)
    expect(status.stderr).toMatch(/\d+ entries of the fence log .* are in the control plane now/)
    expect(status.stdout).toMatch(/fence kafka of region-a: stands/)
    const again = await scene.rig.cli(['status'], options)
    expect(again.stderr).toBe('')
    const log = await (await scene.rig.pg('control-plane')).query<{ ok: boolean }>(
      `select at <= recorded_at as ok from homeregion_control.fence_log where region = 'region-a' and reason = 'the night'`,
    )
    expect(log.rows.length).toBeGreaterThanOrEqual(8)
    // From another machine, which has no file: what Kafka had before comes from the control plane.
    const lifted = await lift('region-a', [], { env: { HOMEREGION_STATE_DIR: join(scene.dir, 'elsewhere') } })
    expect(lifted.code, said(lifted)).toBe(0)
    expect(lifted.stdout).toMatch(/removed: DENY WRITE on topic/)
    await link.stop()
  })
})

describe('lifting', () => {
  it('is refused for a region that owns nothing, and for one whose boundary claims a key that is at home elsewhere', async () => {
    expect((await apply('region-b', ['--fence', 'boundary'])).code).toBe(0)
    const nothing = await lift('region-b')
    expect(nothing.code, said(nothing)).toBe(4)
    expect(nothing.stderr).toContain('owns no key')

    const key = scene.key('hand-forged')
    const forger = await scene.rig.pg('region-b')
    // As whoever owns the boundary could, deliberately: under the key's own lock.
    const claim = async (home: string) => {
      await forger.query('begin')
      await forger.query('select homeregion.lock_key($1)', [key])
      await forger.query('update homeregion.ownership set home_region = $2 where key = $1', [key, home])
      await forger.query('commit')
    }
    await claim('region-b')
    try {
      const refused = await lift('region-b', ['--as-target'])
      expect(refused.code, said(refused)).toBe(4)
      expect(refused.stderr).toContain(`${key} is at home in region-a (epoch 1)`)
      expect((await fence(['probe', 'region-b'])).code).toBe(0)
    } finally {
      await claim('region-a')
    }
    const lifted = await lift('region-b', ['--as-target'])
    expect(lifted.code, said(lifted)).toBe(0)
  })
})

describe('two operators at once', () => {
  it('leave one fence, which one lift takes back whole', async () => {
    const both = await Promise.all([apply('region-b'), apply('region-b')])
    expect(both.map(r => r.code)).toContain(0)
    for (const result of both) expect([0, 5, 7], said(result)).toContain(result.code)
    const probed = await fence(['probe', 'region-b'])
    expect(probed.code, said(probed)).toBe(0)
    const lifted = await lift('region-b', ['--as-target'])
    expect(lifted.code, said(lifted)).toBe(0)
    expect(await login('region-b', secretOf('region-b'))).toBeNull()
    expect((await fence(['status', 'region-b'])).stdout).not.toContain('applied')
  })
})

describe('a fence that is asked for again', () => {
  it('is not taken down by a lift that was allowed before', async () => {
    expect((await apply('region-a', ['--fence', 'boundary'])).code).toBe(0)
    const args = ['fence', 'lift', 'region-a', '--fence', 'boundary', '--reason', 'it is over', '--yes']
    const late = scene.rig.startCli(args, { timeoutMs: COMMAND_TIMEOUT_MS, env: { HOMEREGION_FAULT: 'stop@fence:boundary:before-lift' } })
    await stopped(late)
    const again = await fence(['apply', 'region-a', '--fence', 'boundary', '--reason', 'second incident', '--yes'])
    expect(again.code, said(again)).toBe(0)
    expect(again.stdout).toMatch(/stood already, since .* for .*\(the night\); it stands for .*\(second incident\) too now/)
    late.child.kill('SIGCONT')
    const end = await late.done
    expect(end.code, said(end)).toBe(5)
    expect(end.stderr).toMatch(/boundary is applied since .*\(the night\)/)
    expect(end.stderr).toMatch(/asked for again at .*\(second incident\)/)
    const probed = await fence(['probe', 'region-a', '--fence', 'boundary'])
    expect(probed.code, said(probed)).toBe(0)
  })

  it('is not lifted by a rotation, also where the control plane does not hear of it', async () => {
    touched.add('region-a')
    const rotation = scene.rig.startCli(['credentials', 'rotate', 'region-a', '--role', 'app_writer', '--yes'], {
      timeoutMs: COMMAND_TIMEOUT_MS,
      env: { HOMEREGION_FAULT: 'stop@rotate:between' },
    })
    await stopped(rotation)
    const config = configCopy(scene, c => {
      c.controlPlane = { ...atPort(c.controlPlane, 1) }
    })
    const emergency = await fence(['apply', 'region-a', '--fence', 'credentials', '--reason', 'stolen', '--yes'], {
      env: { HOMEREGION_STATE_DIR: join(scene.dir, 'alone'), HOMEREGION_CONFIG: config },
    })
    expect(emergency.code, said(emergency)).toBe(0)
    rotation.child.kill('SIGCONT')
    const end = await rotation.done
    expect(end.code, said(end)).toBe(5)
    expect(said(end)).toMatch(/credentials of region-a was asked for again at .*\(stolen\)/)
    expect(await login('region-a', secretOf('region-a'))).toBe('28000')
  })
})

describe('credentials rotate', () => {
  it('changes the secret under load, and refuses while a fence of them stands', async () => {
    const load = scene.rig.load({ tenants: [scene.key('hand-load')] })
    await eventually('the load writes', () => load.acks.length > 20)
    const old = secretOf('region-a')
    const rotated = await scene.rig.cli(['credentials', 'rotate', 'region-a', '--role', 'app_writer', '--yes'], {
      timeoutMs: COMMAND_TIMEOUT_MS,
    })
    expect(rotated.code, said(rotated)).toBe(0)
    const acknowledged = load.acks.length
    await eventually('the service writes with the new secret', () => load.acks.length > acknowledged + 20)
    await load.stop()
    expect(await scene.rig.verify(load.acks)).toSatisfy(holds)
    expect(secretOf('region-a')).not.toBe(old)
    expect(await login('region-a', old)).toBe('28P01')
    for (const secret of [old, secretOf('region-a')]) expect(said(rotated)).not.toContain(secret)

    expect((await apply('region-a', ['--fence', 'credentials'])).code).toBe(0)
    const refused = await scene.rig.cli(['credentials', 'rotate', 'region-a', '--yes'], { timeoutMs: COMMAND_TIMEOUT_MS })
    expect(refused.code, said(refused)).toBe(4)
    expect(refused.stderr).toContain('a rotation would lift it')
  })
  it('that fails says what stands after it, which is the login with its old secret', async () => {
    const old = secretOf('region-a')
    const config = configCopy(scene, ({ regions }) => {
      const fences = [
        { kind: 'credentials', roles: [{ role: 'app_writer', sink: { command: ['/bin/sh', '-c', 'cat > /dev/null; exit 3'] } }] },
      ]
      regions['region-a'] = { ...regions['region-a'], fences }
    })
    const failed = await scene.rig.cli(['--config', config, 'credentials', 'rotate', 'region-a', '--yes'], {
      timeoutMs: COMMAND_TIMEOUT_MS,
    })
    expect(failed.code, said(failed)).toBe(7)
    expect(failed.stderr).toMatch(/^error: not rotated: /m)
    expect(failed.stderr).toMatch(/^state: The logins were opened again: app_writer: LOGIN/m)
    expect(failed.stderr).toMatch(/^next: +homeregion credentials rotate region-a/m)
    expect(await login('region-a', old)).toBeNull()
  })
})

describe('what is written wrong', () => {
  it.each([
    [['apply', 'region-x', '--reason', 'x', '--yes'], /did you mean "region-[ab]"/],
    [['apply', 'region-a', '--fence', 'bondary', '--reason', 'x', '--yes'], /did you mean "boundary"/],
    [['apply', 'region-a', '--yes'], /--reason/],
    [['apply', 'region-a', '--reason', '  ', '--yes'], /--reason is empty/],
    [['apply', 'region-a', '--reason', 'x'], /no terminal/],
    [['lift', 'region-a', '--yes'], /--reason/],
  ])('fence %j changes nothing', async (args, message) => {
    const result = await fence(args)
    expect(result.code, said(result)).toBe(64)
    expect(result.stderr).toMatch(message)
    expect(result.stderr).toMatch(/^state: Nothing was (read or )?changed\.$/m)
  })
})
