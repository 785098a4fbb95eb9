import { existsSync } from 'node:fs'
import { beforeAll, describe, expect, it } from 'vitest'
import { useFailoverScene } from './failover-scene.ts'

const scene = useFailoverScene()
/** More keys than points; each is used once. */
const KEYS = Array.from({ length: 80 }, (_, i) => `key-${i}`)
const ANSWERS = ['--observe', '0s', '--rpo-ack', 'any']

let used = 0
function next(): string {
  used += 1
  return KEYS[used] ?? ''
}

async function forced(key: string, fault: string) {
  const args = ['failover', key, '--from', 'region-a', '--to', 'region-b', '--force', '--fence', 'external', '--confirm', key, ...ANSWERS]
  return await scene.cli(args, { env: { HOMEREGION_FAULT: fault } })
}

/** Before the commit nothing happened; after it the key is the target's. Which of both, the record says. */
async function handedOver(key: string): Promise<boolean> {
  const record = await scene.record(key)
  expect(['ACTIVE region-a epoch 1', 'ACTIVE region-b epoch 2']).toContain(record)
  return record.includes('region-b')
}

async function movedAndOpen(key: string): Promise<void> {
  expect(await scene.record(key)).toBe('ACTIVE region-b epoch 2')
  expect(await scene.boundary(key)).toBe('ACTIVE region-b epoch 2 writable')
  expect(await scene.writeAt('region-b', key)).toBeNull()
}

describe('a forced failover that is killed at any of its points', () => {
  let points: readonly string[] = []

  beforeAll(async () => {
    await scene.register(KEYS)
    await scene.kill('region-a')
    await scene.observe()
    const counted = await forced(next(), 'count')
    expect(counted.code, counted.stderr).toBe(0)
    points = [...counted.stderr.matchAll(/^fault-point \d+ (\S+)$/gm)].map(m => m[1] ?? '')
    expect(points).toEqual(
      expect.arrayContaining(['open-run:after', 'isolate-start:before', 'forced:before', 'forced:after', 'forced:opened', 'close:before']),
    )
  })

  // Both ways out of each point before the commit would be twice as many runs: they take turns, and the other order is as good.
  it('is taken back by abort or to its end by resume before the commit, and is only taken forward after it', async () => {
    const committed = points.indexOf('forced:after')
    for (const [index, point] of points.entries()) {
      if (point.startsWith('fence:')) continue
      const key = next()
      await scene.observe()
      const killed = await forced(key, `kill@${index + 1}`)
      expect(killed.signal, `${point}: ${killed.stderr}`).toBe('SIGKILL')
      const over = await handedOver(key)
      expect(over, point).toBe(index >= committed)
      const [run] = await scene.openRuns()
      if (run === undefined) {
        // Its last commit had arrived.
        expect(point).toBe('close:after')
        await movedAndOpen(key)
        continue
      }
      if (over || index % 2 === 0) {
        const aborted = await scene.cli(['abort', run])
        expect(aborted.code, `${point}: ${aborted.stdout}${aborted.stderr}`).toBe(over ? 7 : 0)
        if (over) expect(aborted.stdout, point).toContain(`next:  homeregion resume ${run}`)
        else expect(await scene.record(key), point).toBe('ACTIVE region-a epoch 1')
      }
      if (over || index % 2 === 1) {
        const resumed = await scene.cli(['resume', run, '--confirm', key, ...ANSWERS])
        expect(resumed.code, `${point}: ${resumed.stdout}${resumed.stderr}`).toBe(0)
        await movedAndOpen(key)
      }
      expect(await scene.openRuns(), point).toEqual([])
    }
    expect(existsSync(scene.fenceFile)).toBe(true)
  })
})
