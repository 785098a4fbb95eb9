import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { SandboxRegion } from '../../sandbox/layout.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import type { CliRun } from '../rig/cli.ts'
import { configCopy } from './config-copy.ts'
import { useScene } from './scene.ts'

const LEASE_MS = 12_000
const KEYS = ['outage', 'stopped', 'late', 'moving', 'kept']

/** Region-a stops at its lease's end, region-b goes on. */
describe('agents on the rig', () => {
  const scene = useScene(KEYS)
  const agents: CliRun[] = []
  let config = ''
  const args = (...more: readonly string[]) => ['--config', config, ...more]
  const startAgent = (env: Readonly<Record<string, string>> = {}, file = config) => {
    const agent = scene.rig.startCli(['--config', file, 'agent', '--listen', '127.0.0.1:0'], { env, timeoutMs: 120_000 })
    agents.push(agent)
    return agent
  }
  const addressOf = async (agent: CliRun) => {
    await agent.waitFor(/"event":"listening"/)
    return /"address":"([^"]+)"/.exec(agent.output())?.[1] ?? ''
  }
  const healthOf = async (agent: CliRun) => (await fetch(`http://${await addressOf(agent)}/healthz`)).status
  /** null when it was committed, else the SQLSTATE. */
  const write = async (key: string, region: SandboxRegion = 'region-a') =>
    await scene.write(scene.key(key), region).then(
      () => null,
      (error: unknown) => /HR\d{3}/.exec(String(error))?.[0] ?? String(error),
    )
  const until = async (what: string, timeoutMs: number, look: () => Promise<boolean>) =>
    expect(await waitUntil(look, timeoutMs), what).toBe(true)
  const generationAt = async (region: SandboxRegion) => {
    const client = await scene.rig.pg(region)
    try {
      return Number((await client.query<{ g: string }>('select coalesce(max(generation), 0) as g from homeregion.lease')).rows[0]?.g)
    } finally {
      await client.end()
    }
  }

  beforeAll(async () => {
    config = configCopy(scene, copy => {
      for (const [name, region] of Object.entries(copy.regions))
        Object.assign(region, { lease: { duration: '12s', margin: '1s', onAgentOutage: name === 'region-a' ? 'stop' : 'keep' } })
      Object.assign(copy, {
        agent: { observeEvery: '500ms' },
        alarm: { command: ['sh', '-c', `echo "$HOMEREGION_ALARM_KIND $HOMEREGION_REGION" >> ${join(scene.dir, 'alarms')}`] },
      })
    })
    const done = await scene.rig.cli(args('init', '--yes'))
    expect(done.code, done.stderr).toBe(0)
  })
  afterEach(async () => {
    for (const agent of agents.splice(0)) {
      agent.child.kill('SIGCONT')
      agent.child.kill('SIGKILL')
      await agent.done
    }
  })
  afterAll(async () => {
    const done = await scene.rig.cli(['init', '--yes'])
    expect(done.code, done.stderr).toBe(0)
  })

  test('nothing is written before the first grant; one grant is enough for a while; a crash stops writes at the end, and the next agent brings them back', async () => {
    expect(await write('outage')).toBe('HR004')
    const once = await scene.rig.cli(args('agent', '--once'))
    expect([once.code, once.stdout], once.stderr).toEqual([0, expect.stringMatching(/region-a: lease granted.*\nregion-b: lease granted/)])
    expect(await write('outage')).toBeNull()

    const agent = startAgent()
    await agent.waitFor(/"event":"leading"/)
    await until('healthy', 10_000, async () => (await healthOf(agent)) === 200)
    await until('a heartbeat arrived', 20_000, async () =>
      /homeregion_heartbeat_age_seconds\{region="region-a",at="region-b"\} \d/.test(
        await (await fetch(`http://${await addressOf(agent)}/metrics`)).text(),
      ),
    )
    const status = await scene.rig.cli(args('status'))
    expect(status.stdout).toMatch(
      /region-a: reached \d.*\nregion-b: reached \d.*\n\nlease of region-a: renewed \d.*\nlease of region-b: renewed \d/,
    )
    agent.child.kill('SIGKILL')
    await agent.done
    const killedAt = performance.now()
    let refused: string | null = null
    await until('refused', LEASE_MS + 5000, async () => (refused = await write('outage')) !== null)
    expect(refused).toBe('HR004')
    expect(performance.now() - killedAt).toBeLessThan(LEASE_MS + 2000)
    const late = await scene.rig.cli(args('status', '--exit-code'))
    expect([late.code, late.stdout]).toEqual([2, expect.stringMatching(/lease of region-a: NOT RENEWED, .*its boundary refuses writes/)])
    startAgent()
    await until('written again', 15_000, async () => (await write('outage')) === null)
  })

  test('an agent that is suspended loses the lead before any lease is over, and changes nothing when it wakes', async () => {
    // Suspended right after the control plane granted, before the region was told.
    const first = startAgent({ HOMEREGION_FAULT: 'stop@agent:lease:granted' })
    await until('the first leads', 20_000, async () => /"event":"leading"/.test(first.output()))
    const second = startAgent()
    await second.waitFor(/"event":"leading"/, 20_000)
    await second.waitFor(/"event":"lease-granted","region":"region-a"/, 20_000)
    expect(await write('stopped')).toBeNull()
    const before = await generationAt('region-a')
    first.child.kill('SIGCONT')
    await first.waitFor(/"event":"following"/, 20_000)
    // The region goes on with what the second one grants, and the first is healthy as a follower.
    await until('renewed by the second', 15_000, async () => (await generationAt('region-a')) > before)
    expect(await write('stopped')).toBeNull()
    expect([await healthOf(first), await healthOf(second)]).toEqual([200, 200])

    // And once more while writes go on: whoever leads is suspended, nobody is refused.
    first.child.kill('SIGKILL')
    const third = startAgent()
    await third.waitFor(/"event":"following"/, 20_000)
    second.child.kill('SIGSTOP')
    let refusals = 0
    await until('the third leads', 20_000, async () => {
      if ((await write('stopped')) === 'HR004') refusals += 1
      return /"event":"leading"/.test(third.output())
    })
    const end = performance.now() + LEASE_MS
    await until('a lease later', LEASE_MS + 5000, async () => {
      if ((await write('stopped')) === 'HR004') refusals += 1
      return performance.now() > end
    })
    expect(refusals).toBe(0)
  })

  test('SIGTERM ends it in order, with the leases left as they are', async () => {
    const agent = startAgent()
    await agent.waitFor(/"event":"lease-granted","region":"region-a"/, 20_000)
    agent.child.kill('SIGTERM')
    expect(await agent.done).toMatchObject({ code: 0, stdout: '' })
    expect(agent.output()).toMatch(/"event":"stopped"/)
    expect(await write('late')).toBeNull()
  })

  test('a planned move goes through with leases on, there and back', async () => {
    const agent = startAgent()
    await agent.waitFor(/"event":"lease-granted","region":"region-a"/, 20_000)
    expect(await write('moving')).toBeNull()
    const key = scene.key('moving')
    const there = await scene.transfer(key, 'region-b', ['--config', config])
    expect(there.code, there.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 2)
    const back = await scene.transfer(key, 'region-a', ['--config', config])
    expect(back.code, back.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-a', 3)
  })

  test('a region that keeps on writes beyond the end; an agent that cannot reach it raises the alarm and still renews the others', async () => {
    const key = scene.key('kept')
    const blind = configCopy(scene, copy => {
      Object.assign(copy, {
        agent: { observeEvery: '500ms' },
        alarm: { command: ['sh', '-c', `echo "$HOMEREGION_ALARM_KIND $HOMEREGION_REGION" >> ${join(scene.dir, 'alarms')}`] },
      })
      for (const [name, region] of Object.entries(copy.regions))
        Object.assign(region, { lease: { duration: '12s', margin: '1s', onAgentOutage: name === 'region-a' ? 'stop' : 'keep' } })
      copy.regions['region-b'].database.operator.url = copy.regions['region-b'].database.operator.url.replace(/:\d+\//, ':1/')
    })
    const agent = startAgent()
    await agent.waitFor(/"event":"lease-granted","region":"region-b"/, 20_000)
    const moved = await scene.transfer(key, 'region-b', ['--config', config])
    expect(moved.code, moved.stderr).toBe(0)
    agent.child.kill('SIGKILL')
    await agent.done
    rmSync(join(scene.dir, 'alarms'), { force: true })
    const other = startAgent({}, blind)
    const alarms = () => (existsSync(join(scene.dir, 'alarms')) ? readFileSync(join(scene.dir, 'alarms'), 'utf8') : '')
    await until('the alarm', 30_000, async () => /lease-over region-b/.test(alarms()))
    expect(alarms()).not.toMatch(/region-a/)
    await until("region-b's lease is over", 20_000, async () =>
      /lease of region-b: NOT RENEWED, over for .*configured to let it write on/.test((await scene.rig.cli(args('status'))).stdout),
    )
    expect([await write('kept', 'region-b'), await write('outage')]).toEqual([null, null])
    await until('unhealthy', 5000, async () => (await healthOf(other)) === 503)
  })

  test('doctor says who leads, how far the clocks are apart, and what a lease cannot see', async () => {
    const agent = startAgent()
    await agent.waitFor(/"event":"lease-granted","region":"region-a"/, 20_000)
    await agent.waitFor(/"event":"lease-granted","region":"region-b"/, 20_000)
    const { stdout } = await scene.rig.cli(args('doctor', '-o', 'json'))
    const findings = (JSON.parse(stdout) as { place: string; check: string; verdict: string; detail: string }[]).filter(
      f => f.place === 'agents' || f.place.endsWith(' lease'),
    )
    expect(findings.map(f => [f.place, f.check, f.verdict])).toEqual([
      ['agents', 'who leads', 'pass'],
      ['region-a lease', 'clock', 'pass'],
      ['region-a lease', 'granted', 'pass'],
      ['region-a lease', 'prepared transactions', 'fail'],
      ['region-b lease', 'clock', 'pass'],
      ['region-b lease', 'granted', 'pass'],
      ['region-b lease', 'prepared transactions', 'pass'],
    ])
    expect(findings.find(f => f.check === 'clock')?.detail).toMatch(
      /^[+-]\d+ ms \(give or take \d.*\) against the control plane's, margin 1s$/,
    )
  })
})
