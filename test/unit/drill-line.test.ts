import { expect, it } from 'vitest'
import { drillLine } from '../../src/cli/render/drill.ts'
import type { Drill } from '../../src/domain/failover.ts'

const AT = '2026-03-01T03:00:00.000Z'
const DAY = 86_400_000
const drill: Drill = {
  ...{ id: 'd', source: 'region-a', target: 'region-b', keys: 2, outcome: 'passed', recoveryMs: 12_400, objectiveMs: 60_000 },
  ...{ duplicates: 0, gaps: 0, tookMs: 30_000, detail: null, at: AT, by: 'homeregion_operator' },
}
const after = (ms: number, more: Partial<Drill> = {}) => drillLine({ ...drill, ...more }, Date.parse(AT) + ms)

it('says when it was rehearsed last, how long it took and what the far consumers missed', () => {
  expect(after(3 * DAY)).toBe('region-a -> region-b: last rehearsed 3 days ago: 12.4 s, 0 gaps, 0 duplicates')
  expect(after(3 * 3_600_000)).toContain('3 hours ago')
  expect(after(-5000)).toContain('last rehearsed 0 s ago')
})

it('never shows what was not counted as none, nor a drill that failed as one that passed', () => {
  const failed = after(DAY, { outcome: 'failed', recoveryMs: null, gaps: null, duplicates: null })
  expect(failed).toContain('FAILED: no write at the target, unknown gaps, unknown duplicates')
})
