import { expect, test } from 'vitest'
import type { DrillResult } from '../../src/domain/failover.ts'
import { stopped, useScene } from './scene.ts'

const scene = useScene(['canary-1', 'canary-2', 'busy', 'lost'])

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
  expect(status.stdout).toMatch(/region-a -> region-b: last rehearsed \d+ s ago: \d.* s, 0 gaps, 0 duplicates/)
})

test('an objective that is missed is said by the exit code, and the keys come back all the same', async () => {
  const run = await drill(['lost'], '--objective', '1ms')
  expect(run.code, run.stdout + run.stderr).toBe(2)
  expect(run.stdout).toMatch(/^drill missed-objective: 1 canary keys region-a -> region-b/m)
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

test('keys that nobody named, or that are at home in two regions, are drilled by nobody', async () => {
  expect((await scene.rig.cli(['drill'])).code).toBe(64)
  expect((await drill(['canary-1', 'busy'])).code).toBe(64)
  expect((await scene.rig.cli(['drill', '--keys', 'nobody-knows-it'])).code).toBe(3)
})
