import { afterEach, describe, expect, it } from 'vitest'
import { NO_CATCH_UP_BEFORE, SHORT_CATCH_UP, SHORT_PREFLIGHT, SHORT_PUBLISH } from './runbooks.ts'
import { eventually, useScene } from './scene.ts'

const scene = useScene(['stops-relay', 'stops-publish', 'stops-inbox', 'stops-back'])

// One after the other: a suspended service stops every key of its region.
describe('events that stop on their way', () => {
  afterEach(() => {
    scene.wake('region-a')
    scene.wake('region-b')
  })

  it('at the relay refuse the move before the drain, with the oldest unpublished event and its age', async () => {
    const key = scene.key('stops-relay')
    scene.suspend('region-a')
    await scene.write(key, 'region-a')
    const oldest = await oldestUnpublished(key)
    const run = await scene.transfer(key, 'region-b', ['--runbook', scene.runbook([SHORT_PREFLIGHT])])
    expect(run.code, run.stdout + run.stderr).toBe(3)
    expect(run.stderr).toMatch(
      new RegExp(`^error: preflight: replication-behind: fail: 1 unpublished, oldest \\d.*event ${oldest}.*relay of region-a`, 'm'),
    )
    expect(run.stderr).toMatch(/^state: Nothing was moved; no boundary was touched\.$/m)
    expect(run.stderr).toMatch(/^next: {2}homeregion doctor$/m)
    await scene.writableOnlyAt(key, 'region-a', 1)
  })

  it('at the relay after the drain give the key back under the same epoch, and the move succeeds when the relay is back', async () => {
    const key = scene.key('stops-publish')
    scene.suspend('region-a')
    await scene.write(key, 'region-a')
    const oldest = await oldestUnpublished(key)
    const run = await scene.transfer(key, 'region-b', ['--runbook', scene.runbook([NO_CATCH_UP_BEFORE, SHORT_PUBLISH])])
    expect(run.code, run.stdout + run.stderr).toBe(6)
    expect(run.stdout).toMatch(new RegExp(`outbox-published: fail: 1 unpublished, oldest \\d.*event ${oldest}`))
    expect(run.stdout).toContain(`state: ${key} is written at region-a again, epoch 1: read back`)
    await scene.writableOnlyAt(key, 'region-a', 1)
    scene.wake('region-a')
    const again = await scene.transfer(key, 'region-b')
    expect(again.code, again.stdout + again.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 2)
  })

  it("at the target's inbox activate nobody: the source writes again under a new epoch", async () => {
    const key = scene.key('stops-inbox')
    await scene.write(key, 'region-a')
    // The figures are good, and stay what they are when nothing moves any more.
    await eventually('the inbox has told Kafka how far it is', async () => {
      const plan = await scene.rig.cli(['plan', key, '--to', 'region-b'])
      return plan.stdout.includes('ok replication-behind: 0 events behind')
    })
    scene.suspend('region-b')
    const run = await scene.transfer(key, 'region-b', ['--runbook', scene.runbook([SHORT_CATCH_UP])])
    expect(run.code, run.stdout + run.stderr).toBe(6)
    expect(run.stdout).toMatch(/step catch-up did not pass within 3000 ms: barrier-applied: fail: not applied yet/)
    expect(run.stdout).toContain(`state: ${key} is written at region-a again, epoch 2: read back`)
    expect((await scene.ownership(key)).boundaries).toMatchObject({ 'region-a': 'ACTIVE region-a epoch 2 writable' })
    await scene.writableOnlyAt(key, 'region-a', 2)
    scene.wake('region-b')
    const again = await scene.transfer(key, 'region-b')
    expect(again.code, again.stdout + again.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 3)
  })

  it('on the way back right after a move keep the key where it is: it does not go back before the reverse stream carries', async () => {
    const key = scene.key('stops-back')
    await scene.write(key, 'region-a')
    const there = await scene.transfer(key, 'region-b')
    expect(there.code, there.stdout + there.stderr).toBe(0)
    scene.suspend('region-a')
    await scene.write(key, 'region-b')
    const early = await scene.transfer(key, 'region-a', ['--runbook', scene.runbook([SHORT_PREFLIGHT])])
    expect(early.code, early.stdout + early.stderr).toBe(3)
    expect(early.stderr).toMatch(/replication-behind: (fail|unknown): /)
    await scene.writableOnlyAt(key, 'region-b', 2)
    const late = await scene.transfer(key, 'region-a', ['--runbook', scene.runbook([NO_CATCH_UP_BEFORE, SHORT_CATCH_UP])])
    expect(late.code, late.stdout + late.stderr).toBe(6)
    expect(late.stdout).toContain(`state: ${key} is written at region-b again, epoch 3: read back`)
    await scene.writableOnlyAt(key, 'region-b', 3)
    scene.wake('region-a')
    const back = await scene.transfer(key, 'region-a')
    expect(back.code, back.stdout + back.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-a', 4)
  })
})

async function oldestUnpublished(key: string): Promise<string> {
  const { rows } = await (await scene.rig.pg('region-a')).query<{ id: string }>(
    'select event_id::text as id from public.outbox where tenant_id = $1 and published_at is null order by occurred_at limit 1',
    [key],
  )
  return rows[0]?.id ?? 'none'
}
