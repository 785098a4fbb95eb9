import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { SandboxRegion } from '../../sandbox/layout.ts'
import type { CliRun } from '../rig/cli.ts'
import { startAtTerminal } from '../rig/terminal.ts'
import { eventually, runIdOf, stopped, useScene } from './scene.ts'

const scene = useScene([
  'two-draining',
  'two-planned',
  'two-other',
  'two-forward',
  'two-lapsed',
  'two-handed',
  'two-fencing',
  'two-drained',
  'two-hung-up',
])

describe.concurrent('a key that a run holds', () => {
  it('is refused to a second operator, who is told who holds it, since when, and in which run', async () => {
    const key = scene.key('two-draining')
    const first = await stoppedAt('drain-start:after', key)
    const run = runIdOf(first.output())
    const second = await scene.transfer(key, 'region-b')
    expect(second.code, second.stderr).toBe(5)
    expect(second.stderr).toMatch(new RegExp(`${key}.* run ${run} .*by \\S+.* since \\d{4}-\\d\\d-\\d\\dT`, 's'))
    expect(second.stderr).toMatch(new RegExp(`^next: {2}homeregion run show ${run}$`, 'm'))
    const both = await scene.rig.cli(['status', key, '-o', 'json'])
    expect((JSON.parse(both.stdout) as { openRuns: { id: string }[] }).openRuns.map(r => r.id)).toEqual([run])
    first.child.kill('SIGCONT')
    const end = await first.done
    expect(end.code, end.stdout + end.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 2)
  })

  it('is refused also in a run of several keys, of which then none moves', async () => {
    const [key, other] = [scene.key('two-planned'), scene.key('two-other')]
    const first = await stoppedAt('drain-start:before', key)
    const run = runIdOf(first.output())
    const second = await scene.rig.cli(['transfer', other, key, '--to', 'region-b', '--confirm-count', '2', '--observe', '0s'])
    expect(second.code, second.stderr).toBe(5)
    expect(second.stderr).toMatch(new RegExp(`${key} is held by run ${run} .*of \\S+@\\S+ \\(login \\S+\\) since \\d{4}-`))
    expect(second.stderr).toMatch(/^state: No run was opened\.$/m)
    first.child.kill('SIGCONT')
    expect((await first.done).code).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 2)
    await scene.writableOnlyAt(other, 'region-a', 1)
  })
})

describe('an operator whose connection is lost at the question', () => {
  it('has said no: the run is closed, and the key is free for the next', async () => {
    const key = scene.key('two-hung-up')
    const state = join(scene.dir, 'hung-up')
    const lost = startAtTerminal(['--config', scene.rig.config, 'transfer', key, '--to', 'region-b'], { HOMEREGION_STATE_DIR: state })
    await lost.sees(/Type the key \(/)
    lost.hangsUp()
    await lost.done
    const open = async () => JSON.parse((await scene.rig.cli(['status', key, '-o', 'json'])).stdout) as { openRuns: unknown[] }
    await eventually('the run is closed', async () => (await open()).openRuns.length === 0)
    const next = await scene.transfer(key, 'region-b')
    expect(next.code, next.stderr).toBe(0)
  })
})

describe.concurrent('an operator whose run was taken over while the process was suspended', () => {
  it('changes nothing after the other one finished the move', async () => {
    const key = scene.key('two-forward')
    const first = await stoppedAt('activate:verified', key)
    const run = runIdOf(first.output())
    // Lengthened, so that it does not run out while the next command starts on a busy machine.
    const controlPlane = await scene.rig.pg('control-plane')
    await controlPlane.query(`update homeregion_control.run set lease_until = clock_timestamp() + interval '1 minute' where id = $1`, [run])
    const refused = await scene.rig.cli(['resume', run, '--observe', '0s'])
    expect(refused.code, refused.stderr).toBe(5)
    expect(refused.stderr).toMatch(/is held by \S+@\S+ pid \d+; its lease ends in/)
    const second = await scene.rig.cli(['resume', run, '--take-over', '--observe', '0s'])
    expect(second.code, second.stdout + second.stderr).toBe(0)
    await comesTooLate(first, key)
    await scene.writableOnlyAt(key, 'region-b', 2)
  })

  it('changes nothing when the other one died half way and its lease is over too', async () => {
    const key = scene.key('two-lapsed')
    const first = await stoppedAt('activate:verified', key)
    const run = runIdOf(first.output())
    const second = await scene.rig.cli(['resume', run, '--take-over', '--observe', '0s'], {
      env: { HOMEREGION_FAULT: 'kill@activate:verified' },
    })
    expect(second.signal).toBe('SIGKILL')
    const controlPlane = await scene.rig.pg('control-plane')
    await eventually('the lease of the second is over', async () => {
      const { rows } = await controlPlane.query('select 1 from homeregion_control.run where id = $1 and lease_until < clock_timestamp()', [
        run,
      ])
      return rows.length === 1
    })
    await comesTooLate(first, key)
    const third = await scene.rig.cli(['abort', run])
    expect(third.code, third.stdout + third.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-a', 2)
  })

  it('changes nothing after ownership was handed over: there is only forward for the other one', async () => {
    const key = scene.key('two-handed')
    const first = await stoppedAt('activate:after', key)
    const run = runIdOf(first.output())
    const aborted = await scene.rig.cli(['abort', run, '--take-over'])
    expect(aborted.code, aborted.stdout + aborted.stderr).toBe(7)
    expect(aborted.stdout).toContain("state: It is region-b's since epoch 2; there is only forward.")
    expect(aborted.stdout).toContain(`next:  homeregion resume ${run}`)
    const resumed = await scene.rig.cli(['resume', run, '--observe', '0s'])
    expect(resumed.code, resumed.stdout + resumed.stderr).toBe(0)
    await comesTooLate(first, key)
    await scene.writableOnlyAt(key, 'region-b', 2)
  })

  it.each([
    ['two-fencing', 'fence-start:after'],
    ['two-drained', 'drain-start:after'],
  ])('changes nothing after the other one took the key back (%s, stopped at %s)', async (name, point) => {
    const key = scene.key(name)
    const first = await stoppedAt(point, key)
    const run = runIdOf(first.output())
    const aborted = await scene.rig.cli(['abort', run, '--take-over'])
    expect(aborted.code, aborted.stdout + aborted.stderr).toBe(0)
    expect(aborted.stdout).toContain(`${key} is written at region-a, epoch 1: read back`)
    await comesTooLate(first, key)
    await scene.writableOnlyAt(key, 'region-a', 1)
  })
})

async function stoppedAt(point: string, key: string, to: SandboxRegion = 'region-b'): Promise<CliRun> {
  const run = scene.startTransfer(key, to, [], { env: { HOMEREGION_FAULT: `stop@${point}` }, timeoutMs: 150_000 })
  await stopped(run)
  return run
}

/** Goes on, is told that it is superseded, and leaves no trace in the control plane or a boundary. */
async function comesTooLate(first: CliRun, key: string): Promise<void> {
  const before = await traces(key)
  first.child.kill('SIGCONT')
  const end = await first.done
  expect(end.code, end.stdout + end.stderr).toBe(5)
  expect(end.stderr).toMatch(/^error: .*(was taken over by|superseded|is closed:)/m)
  expect(await traces(key)).toEqual(before)
}

/** Every row of the key and its runs, with the transaction that wrote it last. */
async function traces(key: string): Promise<unknown> {
  const ofRuns = 'run_id in (select run_id from homeregion_control.run_key where key = $1)'
  const controlPlane = await rowsOf('control-plane', key, [
    ...['ownership', 'ownership_log', 'run_key', 'audit'].map(table => [`homeregion_control.${table}`, 'key = $1'] as const),
    ...['attempt', 'evidence'].map(table => [`homeregion_control.${table}`, ofRuns] as const),
    ['homeregion_control.run', ofRuns.replace('run_id in', 'id in')],
  ])
  const boundaries = [
    await rowsOf('region-a', key, [['homeregion.ownership', 'key = $1']]),
    await rowsOf('region-b', key, [['homeregion.ownership', 'key = $1']]),
  ]
  return { controlPlane, boundaries }
}

async function rowsOf(
  where: SandboxRegion | 'control-plane',
  key: string,
  tables: readonly (readonly [string, string])[],
): Promise<readonly unknown[]> {
  const client = await scene.rig.pg(where)
  const found: unknown[] = []
  for (const [table, condition] of tables)
    found.push((await client.query(`select xmin::text, t.* from ${table} t where ${condition} order by t::text`, [key])).rows)
  return found
}
