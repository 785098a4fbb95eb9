import { expect, test } from 'vitest'
import type { Exile } from '../../src/domain/failover.ts'
import { requireReturnAllowed } from '../../src/engine/return-permission.ts'
import { codedError } from './coded-error.ts'

const COOL_DOWN_MS = 600_000
const exile = (endedAt: string | null): Exile => ({
  ...{ id: 'e', region: 'region-a', runIds: ['run-1'], since: '2026-03-01T03:00:00.000Z', done: [], undecided: 0 },
  ...{ endedAt, endedBy: null, endReason: null },
})
const asked = async (ageMs: number, reason: string | null = null, endedAt: string | null = '2026-03-01T03:05:00.000Z') => {
  const failover = { source: 'region-a', runId: 'run-1', at: '2026-03-01T03:00:00.000Z', ageMs }
  const command = 'homeregion failback run-1'
  await requireReturnAllowed({ exiles: () => Promise.resolve([exile(endedAt)]) }, failover, { coolDownMs: COOL_DOWN_MS, reason, command })
}

test('keys go back once the cool-down since the failover is over, and not a moment before', async () => {
  await asked(COOL_DOWN_MS)
  const refused = await codedError(() => asked(COOL_DOWN_MS - 1000))
  expect(refused).toMatchObject({ code: 'check-refused' })
  expect(refused.text.fact).toBe('region-a was failed over 9 min 59 s ago; policy.coolDown is 10 min 0 s')
  expect(refused.text.state).toContain('from 2026-03-01T03:10:00.000Z on (in 1.0 s)')
  expect(refused.text.next).toMatch(/^homeregion failback run-1 --reason TEXT /)
})

test('a reason passes the cool-down, and no exile', async () => {
  await asked(0, 'corrective')
  expect(await codedError(() => asked(0, ' '))).toMatchObject({ code: 'check-refused' })
  expect(await codedError(() => asked(COOL_DOWN_MS, 'corrective', null))).toMatchObject({ code: 'region-exiled' })
})
