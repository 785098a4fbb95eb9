import { expect, test } from 'vitest'
import { createControlPlane } from '../../src/adapters/control-plane/control-plane-store.ts'
import { loadConfig } from '../../src/adapters/files/config-file.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import { runIdOf } from '../e2e/scene.ts'
import { insideTheBound, linkCut, lostCommits } from './link-cut.ts'
import { useLinkedScene } from './linked-scene.ts'

const KEYS = ['west-1', 'west-2', 'west-3']

const scene = useLinkedScene(config => {
  const region = config.regions['region-a']
  if (region !== undefined) region.lease = { duration: '6s', margin: '1s', onAgentOutage: 'stop' }
})

test('the link is cut for 43 s, forced at 20 s: with a lease nothing is committed at the source after its end, and every earlier write is listed', async () => {
  await scene.register(KEYS)
  const agent = scene.agent()
  await agent.waitFor(/"event":"lease-granted","region":"region-a"/, 60_000)
  const ends: number[] = []
  const seen = await linkCut(scene, agent, {
    keys: KEYS,
    scale: 1,
    force: async () => {
      const [lease] = await scene.query<{ at: number }>(
        'region-a',
        'select extract(epoch from expires_at)::float8 * 1000 as at from homeregion.lease',
      )
      ends.push(lease?.at ?? 0)
      return await scene.regions.cli([
        ...['failover', ...KEYS, '--from', 'region-a', '--to', 'region-b', '--force', '--fence', 'lease', '--rpo-ack', '120s'],
        ...['--confirm-count', String(KEYS.length), '--observe', '0s'],
      ])
    },
  })
  const [end = 0] = ends
  // Both clocks are this machine's. An answer to a write that was committed in time takes a moment.
  const late = seen.atSource.acks.filter(a => performance.timeOrigin + a.ackedAtMs > end + 1000)
  expect(late.map(a => a.idempotencyKey)).toEqual([])
  expect(seen.commits.filter(c => c.occurredAtMs > end).map(c => c.eventId)).toEqual([])
  expect(seen.commits.length).toBe(seen.commitsThen.length)
  expect(seen.atSource.refusals.some(r => r.sqlstate === 'HR004')).toBe(true)
  expect(seen.atTarget.acks.filter(a => a.epoch === 2 && a.region === 'region-b').length).toBeGreaterThan(20)

  const lost = await lostCommits(scene, seen)
  expect(lost.length).toBeGreaterThan(0)
  const { config } = loadConfig({ env: {}, cwd: scene.regions.dir, flags: {}, file: `${scene.regions.dir}/homeregion.yaml` })
  const store = createControlPlane(config, createSecrets({}))
  try {
    const [failover] = await store.forcedFailovers({ runId: runIdOf(seen.forced.stdout), limit: 1 })
    expect(failover?.fence).toBe('lease-over')
    insideTheBound(failover, lost, end)
  } finally {
    await store.close()
  }
  const findings = await scene.regions.rig.verify([...seen.atSource.acks, ...seen.atTarget.acks])
  expect(findings.overlaps).toEqual([])
  expect(findings.doubled).toEqual([])
  expect(findings.epochJumps).toEqual([])
}, 240_000)
