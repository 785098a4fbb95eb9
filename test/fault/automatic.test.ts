import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { stopped } from '../e2e/scene.ts'
import type { CliRun } from '../rig/cli.ts'
import { useLinkedScene } from './linked-scene.ts'

const KEYS = ['auto-1', 'auto-2', 'ledger-auto']

const scene = useLinkedScene((config, dir) => {
  const region = config.regions['region-a']
  if (region !== undefined) region.lease = { duration: '4s', margin: '1s', onAgentOutage: 'stop' }
  config.policy = { ...config.policy, runLease: '20s', automatic: { coolDown: '1h', maxLoss: '60s' } }
  Object.assign(config, { alarm: { command: ['sh', '-c', `echo "$HOMEREGION_ALARM_KIND: $HOMEREGION_ALARM" >> ${join(dir, 'alarms')}`] } })
})

/** A forced run that has its keys and goes no further. */
async function openedByPerson(): Promise<CliRun> {
  const args = ['failover', ...KEYS, '--from', 'region-a', '--to', 'region-b', '--force', '--fence', 'lease', '--rpo-ack', 'any']
  const until = performance.now() + 60_000
  for (;;) {
    const run = scene.regions.startCli([...args, '--confirm-count', '2'], { env: { HOMEREGION_FAULT: 'stop@open-run:after' } })
    // Refused until it has been dark for long enough.
    if (
      await stopped(run).then(
        () => true,
        () => false,
      )
    )
      return run
    if (performance.now() > until) throw new Error(`no run was opened: ${run.output()}`)
  }
}

test('an agent that may fails a region over once it is dark, on its lease, loudly, and leaves the keys that may lose nothing', async () => {
  await scene.register(KEYS)
  const agent = scene.agent()
  await agent.waitFor(/"event":"lease-granted","region":"region-a"/, 60_000)
  const load = scene.load('region-a', { tenants: KEYS, ratePerSecond: 20, concurrency: 3 })
  await scene.until('the agent knows how far behind the target is', 90_000, async () => {
    const looks = await scene.query(
      'control-plane',
      `select 1 from homeregion_control.region_observation where region = 'region-a' and highest_per_second is not null
  and ((not_applied -> 'region-b' ->> 'events')::int = 0 or not_applied -> 'region-b' ->> 'oldestMs' is not null)`,
    )
    return load.acks.length > 20 && looks.length > 0
  })
  expect(agent.output()).not.toMatch(/"event":"automatic/)
  // A person was faster, and is gone: the agent waits for that run's lease to end, and no longer.
  agent.child.kill('SIGSTOP')
  scene.regions.cut('region-a')
  scene.regions.cut('region-b')
  const person = await openedByPerson()
  agent.child.kill('SIGCONT')
  await agent.waitFor(/"event":"automatic-not-mine","region":"region-a","why":"run [\w-]+ of homeregion_operator is at it"/, 30_000)
  await agent.waitFor(/"event":"automatic-failover-ended"/, 90_000)
  expect(agent.output()).toMatch(/"event":"automatic-failover-ended","region":"region-a","exit":"done"/)
  expect(agent.output()).toMatch(/"event":"automatic-rival","region":"region-a","run":"[\w-]+","startedBy":"homeregion_operator","keys":2/)
  person.child.kill('SIGKILL')
  const owned = await scene.query<{ key: string; home: string }>(
    'control-plane',
    'select key, home_region as home from homeregion_control.ownership where key = any ($1) order by key',
    [KEYS],
  )
  expect(owned.map(r => `${r.key} ${r.home}`)).toEqual(['auto-1 region-b', 'auto-2 region-b', 'ledger-auto region-a'])
  const target = scene.load('region-b', { tenants: KEYS.slice(0, 2), ratePerSecond: 20, concurrency: 2 })
  await scene.until('the target writes', 30_000, () => target.acks.some(a => a.epoch === 2))
  await scene.until(
    'both alarms',
    10_000,
    () => (readFileSync(join(scene.regions.dir, 'alarms'), 'utf8').match(/automatic-failover:/g) ?? []).length === 2,
  )
  const [run] = await scene.query<{ reason: string }>(
    'control-plane',
    `select reason from homeregion_control.run where intent = 'failover' order by started_at desc`,
  )
  expect(run?.reason).toMatch(/^automatic: region-a is dark/)
  await load.stop(300)
  await target.stop()
  scene.regions.heal()
  await agent.waitFor(/"event":"exile-fenced"/, 60_000)
  const runs = await scene.query(
    'control-plane',
    `select 1 from homeregion_control.run where intent = 'failover' and reason like 'automatic:%'`,
  )
  expect(runs).toHaveLength(1)
}, 240_000)
