import { existsSync } from 'node:fs'
import { expect, test } from 'vitest'
import { formatMs } from '../../src/domain/duration.ts'
import type { DrillResult } from '../../src/domain/failover.ts'
import type { Rehearsal } from '../../src/domain/rehearsal.ts'
import { COMMAND_TIMEOUT_MS, runIdOf, stopped, useScene } from './scene.ts'

const scene = useScene(['canary-1', 'canary-2', 'busy', 'lost', 'wanted', 'late', 'orphan', 'between'])

const drill = async (keys: readonly string[], ...more: readonly string[]) =>
  await scene.rig.cli(['drill', '--keys', keys.map(key => scene.key(key)).join(','), ...more], { timeoutMs: 120_000 })

test('canary keys move there and back under writes; how long it took is kept and shown, with what the far consumers missed', async () => {
  const keys = ['canary-1', 'canary-2'].map(name => scene.key(name))
  const load = scene.rig.load({ tenants: keys, ratePerSecond: 10, concurrency: 2 })
  const run = await drill(['canary-1', 'canary-2'], '--from', 'region-a', '--objective', '100s', '-o', 'json')
  await load.stop()
  expect(run.code, run.stdout + run.stderr).toBe(0)
  const result = JSON.parse(run.stdout) as DrillResult
  expect(result).toMatchObject({ source: 'region-a', target: 'region-b', keys: 2, outcome: 'passed', gaps: 0, duplicates: 0 })
  expect(result.recoveryMs).toBeGreaterThan(0)
  expect(result.detail).toMatchObject({ returned: true })
  for (const key of keys) {
    expect((await scene.ownership(key)).record).toBe('ACTIVE region-a epoch 3')
    await scene.writableOnlyAt(key, 'region-a', 3)
  }
  const status = await scene.rig.cli(['status'])
  expect(status.stdout).toMatch(/region-a -> region-b: last rehearsed \d+ s ago: /)
  // To the millisecond, in whatever unit it is told: this move may well take less than a second.
  expect(status.stdout).toContain(` s ago: ${formatMs(result.recoveryMs ?? 0)}, 0 gaps, 0 duplicates\n`)
})

test('an objective that is missed is said by the exit code, and the keys come back all the same', async () => {
  const run = await drill(['lost'], '--objective', '1ms')
  expect(run.code, run.stdout + run.stderr).toBe(2)
  expect(run.stdout).toMatch(/^drill missed-objective: 1 canary key region-a -> region-b/m)
  expect((await scene.ownership(scene.key('lost'))).record).toBe('ACTIVE region-a epoch 3')
})

test('a drill gives way to a real run that has one of its keys, changes nothing, and says so', async () => {
  const key = scene.key('busy')
  const real = scene.startTransfer(key, 'region-b', [], { env: { HOMEREGION_FAULT: 'stop@open-run:after' } })
  await stopped(real)
  const run = await drill(['busy'])
  expect(run.code, run.stdout + run.stderr).toBe(5)
  expect(run.stdout).toMatch(/^drill pre-empted/m)
  real.child.kill('SIGCONT')
  const done = await real.done
  expect(done.code, done.stdout + done.stderr).toBe(0)
  expect((await scene.ownership(key)).record).toBe('ACTIVE region-b epoch 2')
})

test('a person who wants a key in the hands of a drill gets it: the drill is asked, takes back what it began, and is recorded as pre-empted', async () => {
  const key = scene.key('wanted')
  const drilling = scene.rig.startCli(['drill', '--keys', key, '-o', 'json'], {
    timeoutMs: COMMAND_TIMEOUT_MS,
    env: { HOMEREGION_FAULT: 'stop@drain:applied' },
  })
  await stopped(drilling)
  expect((await scene.transfer(key, 'region-b', ['--reason', 'drill: not one'])).code).toBe(64)
  const real = scene.startTransfer(key, 'region-b')
  await real.waitFor(/is a drill: it was asked to give way/)
  drilling.child.kill('SIGCONT')
  const [done, drilled] = await Promise.all([real.done, drilling.done])
  expect(done.code, done.stdout + done.stderr).toBe(0)
  expect(done.stderr).toContain('the keys are free')
  expect((await scene.ownership(key)).record).toMatch(/^ACTIVE region-b /)
  expect(drilled.code, drilled.stdout + drilled.stderr).toBe(5)
  expect(JSON.parse(drilled.stdout)).toMatchObject({ outcome: 'pre-empted', recoveryMs: null })
  expect((await scene.rig.cli(['status'])).stdout).toContain('PRE-EMPTED')
  expect((await scene.rig.cli(['run', 'show', runIdOf(drilled.stderr)])).stdout).toContain('ABORTED')
})

test('a drill that has moved the key already when it is asked leaves it where it is, and does not move it once more', async () => {
  const key = scene.key('late')
  const drilling = scene.rig.startCli(['drill', '--keys', key], {
    timeoutMs: COMMAND_TIMEOUT_MS,
    env: { HOMEREGION_FAULT: 'stop@key-end:before' },
  })
  await stopped(drilling)
  const real = scene.startTransfer(key, 'region-a')
  await real.waitFor(/was asked to give way/)
  drilling.child.kill('SIGCONT')
  const [done, drilled] = await Promise.all([real.done, drilling.done])
  expect(drilled.code, drilled.stdout + drilled.stderr).toBe(5)
  expect(drilled.stdout).toMatch(new RegExp(`^state: ${key} is ACTIVE, home region-b, epoch 2 `, 'm'))
  expect(done.code, done.stdout + done.stderr).toBe(0)
  await scene.writableOnlyAt(key, 'region-a', 3)
})

test('a drill whose process is dead keeps nobody waiting: its run is aborted, and nothing of it is forced', async () => {
  const key = scene.key('orphan')
  const killed = await scene.rig.cli(['drill', '--keys', key], { env: { HOMEREGION_FAULT: 'kill@fence-end:after' } })
  expect(killed.signal, killed.stdout + killed.stderr).toBe('SIGKILL')
  await scene.writableNowhere(key)
  const real = await scene.transfer(key, 'region-b')
  expect(real.code, real.stdout + real.stderr).toBe(0)
  expect(real.stderr).toMatch(/nobody drives run .* its keys are taken back/)
  await scene.writableOnlyAt(key, 'region-b', 3)
})

test('a drill that was killed is ended by the next one: its keys are brought home first, wherever it died, and that is said', async () => {
  const key = scene.key('between')
  const passes = await scene.rig.cli(['drill', '--keys', key, '-o', 'json'], { env: { HOMEREGION_FAULT: 'count' } })
  expect(passes.code, passes.stdout + passes.stderr).toBe(0)
  // Nobody wrote: that is no rehearsal of the consumers, and is not told as one.
  expect(JSON.parse(passes.stdout)).toMatchObject({ outcome: 'passed', detail: { writes: 0 } })
  expect((await scene.rig.cli(['status'])).stdout).toContain('nothing was written: consumers not exercised')
  const points = [...passes.stderr.matchAll(/^fault-point (\d+) (\S+)$/gm)].map(([, nth, name]) => ({ nth: nth ?? '', name }))
  const closed = points.filter(p => p.name === 'close:after')
  const drained = points.filter(p => p.name === 'drain:applied')
  expect([closed.length, drained.length]).toEqual([2, 2])
  // Between its two moves there is no open run that could tell; on the way back there is one, and it moves the other way.
  for (const nth of [closed[0]?.nth ?? '', drained[1]?.nth ?? '']) {
    const killed = await scene.rig.cli(['drill', '--keys', key], { env: { HOMEREGION_FAULT: `kill@${nth}` } })
    expect(killed.signal, killed.stdout + killed.stderr).toBe('SIGKILL')
    expect((await scene.ownership(key)).record).toMatch(/ region-b /)
    const next = await drill(['between'], '-o', 'json')
    expect(next.code, next.stdout + next.stderr).toBe(0)
    expect(next.stderr.match(/did not end; its keys belong in region-a/g)).toHaveLength(1)
    expect(next.stderr).toContain('brought home to region-a in ')
    expect(JSON.parse(next.stdout)).toMatchObject({ source: 'region-a', target: 'region-b', outcome: 'passed' })
    expect((await scene.ownership(key)).record).toMatch(/^ACTIVE region-a /)
  }
}, 180_000)

test('keys that nobody named, or that are at home in two regions, are drilled by nobody', async () => {
  expect((await scene.rig.cli(['drill'])).code).toBe(64)
  expect((await drill(['canary-1', 'busy'])).code).toBe(64)
  expect((await scene.rig.cli(['drill', '--keys', 'nobody-knows-it'])).code).toBe(3)
  expect((await scene.rig.cli(['drill', '--sandbox', '--keys', 'canary-1'])).code).toBe(64)
})

test('the whole of a forced failover is rehearsed in a sandbox: what is lost is inside what was acknowledged, and the keys come back', async () => {
  const run = await scene.rig.cli(['drill', '--sandbox', '--objective', '90s', '-o', 'json'], {
    timeoutMs: 170_000,
    env: { HOMEREGION_CONFIG: '' },
  })
  expect(run.code, run.stdout + run.stderr).toBe(0)
  const result = JSON.parse(run.stdout) as Rehearsal
  expect(result).toMatchObject({ rehearsed: 'forced failover, sandbox', outcome: 'passed', gaps: 0, duplicates: 0, overlaps: 0, why: [] })
  // Users wrote on while nothing left the region, so that something was lost.
  expect(result.loss?.found).toBeGreaterThan(5)
  expect(result.recoveryMs).toBeGreaterThan(result.sinceAcknowledgedMs ?? Infinity)
  const [, dir = ''] = /sandbox of its own in (\S+)/.exec(run.stderr) ?? []
  expect(existsSync(dir)).toBe(false)
}, 300_000)
