import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { COMMAND_TIMEOUT_MS, runIdOf, stopped, useScene } from './scene.ts'
import { createSharedDatabase, type SharedDatabase } from './shared-database.ts'

const scene = useScene([])
let shared: SharedDatabase
beforeAll(async () => {
  shared = await createSharedDatabase(scene.rig, scene.dir)
})
afterAll(async () => await shared?.stop())

const run = async (args: readonly string[], fault?: string) =>
  await shared.cli(args, { timeoutMs: COMMAND_TIMEOUT_MS, ...(fault === undefined ? {} : { env: { HOMEREGION_FAULT: fault } }) })
const transferArgs = (key: string, to: string) => ['transfer', key, '--to', to, '--confirm', key, '--observe', '0s']

async function writableOnlyAt(key: string, home: 'region-a' | 'region-b', epoch: number): Promise<void> {
  const other = home === 'region-a' ? 'region-b' : 'region-a'
  expect([await shared.write(home, key), await shared.write(other, key)]).toEqual([null, 'HR001'])
  const place = `ACTIVE ${home} epoch ${epoch}`
  expect(await shared.ownership(key)).toEqual({ record: place, boundary: place })
}

describe('one database that both regions share', () => {
  test('init installs the control plane, then the boundary once; both regions are sound', async () => {
    const done = await run(['init', '--yes'])
    expect(done.code, done.stderr).toBe(0)
    expect(done.stdout.indexOf('control plane: installed')).toBeLessThan(done.stdout.indexOf('region-a boundary: installed'))
    const again = await run(['init', '--yes'])
    expect(again.stdout.match(/stands as configured/g)).toHaveLength(3)
    const doctor = await run(['doctor'])
    expect(doctor.code, doctor.stdout).toBe(0)
    const added = await run(['key', 'add', 's-1', 's-2', 's-3', 's-4', 's-5', 's-6', '--home', 'region-a'])
    expect(added.code, added.stderr).toBe(0)
    await writableOnlyAt('s-1', 'region-a', 1)
  })

  test('a key moves and moves back, and the checks that have nothing to observe are named', async () => {
    const shown = await run([...transferArgs('s-1', 'region-b'), '--dry-run'])
    expect(shown.stdout + shown.stderr).toContain('both regions write one shared database: there is nothing to catch up with')
    const there = await run(transferArgs('s-1', 'region-b'))
    expect(there.code, there.stderr + there.stdout).toBe(0)
    await writableOnlyAt('s-1', 'region-b', 2)
    const back = await run(transferArgs('s-1', 'region-a'))
    expect(back.code, back.stderr).toBe(0)
    await writableOnlyAt('s-1', 'region-a', 3)
  })

  test('an abort of a fenced key gives it back under a new epoch', async () => {
    const moving = shared.startCli(transferArgs('s-2', 'region-b'), {
      env: { HOMEREGION_FAULT: 'stop@fence-end:after' },
      timeoutMs: COMMAND_TIMEOUT_MS,
    })
    await stopped(moving)
    expect(await shared.ownership('s-2')).toEqual({ record: 'FENCED region-a epoch 1', boundary: 'FENCED region-a epoch 1' })
    expect([await shared.write('region-a', 's-2'), await shared.write('region-b', 's-2')]).toEqual(['HR001', 'HR001'])
    moving.child.kill('SIGKILL')
    await moving.done
    const aborted = await run(['abort', runIdOf(moving.output())])
    expect(aborted.code, aborted.stderr + aborted.stdout).toBe(0)
    await writableOnlyAt('s-2', 'region-a', 2)
  })

  test('a fence of somebody else is left to a human, and an abort gives the key back', async () => {
    const moving = shared.startCli(transferArgs('s-6', 'region-b'), {
      env: { HOMEREGION_FAULT: 'stop@fence-start:after' },
      timeoutMs: COMMAND_TIMEOUT_MS,
    })
    await stopped(moving)
    await shared.query(`select homeregion.fence(key, epoch, token, 'of-somebody-else') from homeregion.ownership where key = $1`, ['s-6'])
    moving.child.kill('SIGCONT')
    const { code, stdout, stderr } = await moving.done
    expect(code, stderr + stdout).toBe(7)
    expect(stderr + stdout).toContain('with barrier of-somebody-else, which is not this run')
    expect(await shared.ownership('s-6')).toMatchObject({ boundary: 'FENCED region-a epoch 1' })
    const aborted = await run(['abort', runIdOf(stderr + stdout)])
    expect(aborted.code, aborted.stderr + aborted.stdout).toBe(0)
    await writableOnlyAt('s-6', 'region-a', 2)
  })

  test.each([
    ['s-3', 'drain-start:after', 'DRAINING region-a epoch 1', 'DRAINING region-a epoch 1'],
    ['s-4', 'fence:applied', 'DRAINING region-a epoch 1', 'FENCED region-a epoch 1'],
    ['s-5', 'activate:after', 'ACTIVE region-b epoch 2', 'ACTIVE region-b epoch 2'],
  ])('%s: killed at %s, a resume finishes the move', async (key, fault, record, boundary) => {
    const killed = await run(transferArgs(key, 'region-b'), `kill@${fault}`)
    expect(killed.signal).toBe('SIGKILL')
    expect(await shared.ownership(key)).toEqual({ record, boundary })
    const resumed = await run(['resume', runIdOf(killed.stdout + killed.stderr), '--confirm', key, '--observe', '0s'])
    expect(resumed.code, resumed.stderr + resumed.stdout).toBe(0)
    await writableOnlyAt(key, 'region-b', 2)
  })
})
