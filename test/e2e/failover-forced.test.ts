import { beforeAll, describe, expect, it } from 'vitest'
import { APPROVER, STRANGER, useFailoverScene } from './failover-scene.ts'
import { runIdOf } from './scene.ts'

const scene = useFailoverScene()
const AWAY = ['--from', 'region-a', '--to', 'region-b', '--force', '--observe', '0s']
const WORD = ['--attest', 'power is out in the whole building']

describe('while the source answers', () => {
  it('a forced failover is refused, says who reached it, and points to the way that loses nothing', async () => {
    await scene.register(['s12'])
    const run = await scene.cli(['failover', 's12', ...AWAY, '--rpo-ack', 'any', '--confirm', 's12', ...WORD])
    expect(run.code, run.stderr).toBe(3)
    expect(run.stderr).toMatch(/^error: region-a is not dark: this host reached its database just now \(policy\.darkAfter is 1\.0 s\)/m)
    expect(run.stderr).toMatch(/^next: {2}homeregion failover --from region-a --to region-b {3}\(without --force; or homeregion transfer/m)
    expect(await scene.record('s12')).toBe('ACTIVE region-a epoch 1')
    expect(await scene.openRuns()).toEqual([])
  })
})

describe('when the source is dark', () => {
  beforeAll(async () => {
    await scene.register(['thin'])
    await scene.kill('region-a')
  })

  it('an attested failover waits for the second person, then hands over in one commit, opens the target, and its first write goes there', async () => {
    await scene.observe({ ageMs: 5_000 })
    const run = await scene.cli(['failover', 'thin', ...AWAY, '--rpo-ack', '60s', '--confirm', 'thin', ...WORD])
    expect(run.code, run.stdout + run.stderr).toBe(8)
    const id = runIdOf(run.stdout)
    expect(run.stdout).toContain(`next:  homeregion approve ${id}`)
    expect(await scene.record('thin')).toBe('ACTIVE region-a epoch 1')
    const own = await scene.cli(['approve', id])
    expect(own.code, own.stderr).toBe(4)
    expect(own.stderr).toContain('the one who began a run cannot approve it')
    const strange = await scene.cli(['approve', id], { as: STRANGER })
    expect(strange.code, strange.stderr).toBe(4)
    const approved = await scene.cli(['approve', id, '--reason', 'seen from the window'], { as: APPROVER })
    expect(approved.code, approved.stderr).toBe(0)
    const resumed = await scene.cli(['resume', id, '--observe', '0s'])
    expect(resumed.code, resumed.stdout + resumed.stderr).toBe(0)
    expect(resumed.stdout).toContain('1 key moved from region-a to region-b')
    expect(await scene.record('thin')).toBe('ACTIVE region-b epoch 2')
    expect(await scene.boundary('thin')).toBe('ACTIVE region-b epoch 2 writable')
    expect(await scene.writeAt('region-b', 'thin')).toBeNull()
    expect(await scene.store.forcedFailovers({ runId: id, limit: 1 })).toMatchObject([
      { fence: 'source-attested', acknowledgement: { kind: 'bound', boundMs: 60_000 } },
    ])
    expect(await scene.store.exiles('region-a')).toMatchObject([{ runIds: [id], endedAt: null }])
  })
})
