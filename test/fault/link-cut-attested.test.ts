import { expect, test } from 'vitest'
import { runIdOf } from '../e2e/scene.ts'
import { linkCut, lostCommits } from './link-cut.ts'
import { APPROVER, useLinkedScene } from './linked-scene.ts'

const KEYS = ['east-1', 'east-2', 'east-3']

const scene = useLinkedScene(() => undefined)

test('without a lease a person’s word that turns out wrong leaves two writers, and every write of the former one is listed and none applied', async () => {
  await scene.register(KEYS)
  const agent = scene.agent()
  await agent.waitFor(/"event":"leading"/, 60_000)
  const seen = await linkCut(scene, agent, {
    keys: KEYS,
    // The shape is kept, in a third of its time.
    scale: 1 / 3,
    force: async () => {
      const { regions } = scene
      const run = await regions.cli([
        ...['failover', ...KEYS, '--from', 'region-a', '--to', 'region-b', '--force', '--attest', 'nobody reaches it any more'],
        ...['--rpo-ack', '120s', '--confirm-count', String(KEYS.length), '--observe', '0s'],
      ])
      expect(run.code, run.stdout + run.stderr).toBe(8)
      const id = runIdOf(run.stdout)
      const approved = await regions.cli(['approve', id], { config: `${regions.dir}/${APPROVER}.yaml` })
      expect(approved.code, approved.stderr).toBe(0)
      return await regions.cli(['resume', id, '--observe', '0s'])
    },
  })
  // It wrote on behind the cut, and its own users were told that all is well.
  expect(seen.commits.length).toBeGreaterThan(seen.commitsThen.length)
  expect(seen.atSource.acks.filter(a => a.ackedAtMs > seen.forcedAtMs).length).toBeGreaterThan(20)
  expect(seen.atTarget.acks.filter(a => a.epoch === 2 && a.region === 'region-b').length).toBeGreaterThan(20)

  const lost = await lostCommits(scene, seen)
  expect(lost.length).toBeGreaterThanOrEqual(seen.commits.length - seen.commitsThen.length)
  // Published after all, once the link was back: kept with their payload, and never applied.
  const kept = await scene.quarantined('region-b')
  expect(lost.filter(c => c.published && !kept.has(c.eventId))).toEqual([])
  const findings = await scene.regions.rig.verify([...seen.atSource.acks, ...seen.atTarget.acks])
  // Two regions wrote at the same time, and never under one epoch.
  expect(findings.overlaps.filter(line => line.includes('written by'))).toEqual([])
  expect(findings.doubled).toEqual([])
  expect(findings.epochJumps).toEqual([])
}, 240_000)
