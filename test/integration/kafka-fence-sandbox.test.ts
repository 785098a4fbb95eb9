import { expect, test } from 'vitest'
import { waitUntil } from '../../sandbox/wait-until.ts'
import type { FenceCause } from '../../src/domain/fence.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { useRig } from '../rig/use-rig.ts'
import { createFence, notesInMemory } from './kafka-fence-fixture.ts'
import { registerKey, rigConfig } from './service-key.ts'

const rig = useRig()
const CAUSE: FenceCause = { reason: 'a move', by: 'ada', runId: null }

test('the fence of the sandbox stops its relay; what it could not publish is published after lift', async () => {
  const key = `kafka-fenced-${Date.now()}`
  await registerKey(rig.current, key)
  const database = await rig.current.pg('region-a')
  const unpublished = async () => {
    const { rows } = await database.query<{ n: number }>(
      'select count(*)::int as n from public.outbox where tenant_id = $1 and published_at is null',
      [key],
    )
    return rows[0]?.n ?? -1
  }
  const fence = createFence(rigConfig(rig.current), notesInMemory())
  const load = rig.current.load({ tenants: [key] })
  const lines = await fence.apply(CAUSE)
  expect(lines.join('\n')).toMatch(/User:app_service: \d+ writes refused by broker 1/)
  const behind = await unpublished()
  expect(await waitUntil(async () => (await unpublished()) > behind + 5, 20_000)).toBe(true)
  expect((await fence.verify()).map(o => o.verdict)).toEqual(['pass', 'pass', 'pass', 'pass'])

  await liftStanding(fence, CAUSE)
  await load.stop()
  expect(await waitUntil(async () => (await unpublished()) === 0, 30_000)).toBe(true)
})
