import { expect, it } from 'vitest'
import type { Leg } from '../../src/cli/drill/leg.ts'
import { drillLine, drillText } from '../../src/cli/render/drill.ts'
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

it('does not call none missed of none a rehearsal of the consumers', () => {
  expect(after(DAY, { detail: { writes: 0 } })).toMatch(/: 12\.4 s, nothing was written: consumers not exercised$/)
  expect(after(DAY, { detail: { writes: 1 } })).toMatch(/0 gaps, 0 duplicates$/)
})

it('names what helps when it failed: the way home first, else what the step named, else where it is written down', () => {
  const leg = (outcome: Leg['outcome'], next: string | null = null): Leg => ({
    ...{ runId: 'run-1', outcome, recoveryMs: null, why: 'no', next, wanted: false },
  })
  const text = (there: Leg, back: Leg | null, detail: Drill['detail'] = null) =>
    drillText({ ...drill, outcome: 'failed', detail }, { there, back, wanted: true, found: [], keys: ['c-1', 'c-2'] })
  expect(text(leg('moved'), leg('failed', 'homeregion doctor'))).toMatch(
    /^next: {2}homeregion drill --keys c-1,c-2 {3}\(brings them home first\)$/m,
  )
  expect(text(leg('failed', 'homeregion doctor'), null)).toMatch(/^next: {2}homeregion doctor$/m)
  expect(text(leg('moved'), leg('moved'), { runs: ['run-1'] })).toMatch(/^next: {2}homeregion run show run-1$/m)
  expect(text(leg('failed'), null)).toMatch(/^next: {2}homeregion doctor$/m)
})
