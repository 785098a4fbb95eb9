import { Chalk } from 'chalk'
import { describe, expect, it } from 'vitest'
import type { Printer } from '../../src/cli/context.ts'
import { regionsSeen } from '../../src/cli/regions-seen.ts'
import type { ForcedStatus } from '../../src/cli/render/exile.ts'
import { type Status, statusPaste, statusText } from '../../src/cli/render/status.ts'
import type { RegionLease } from '../../src/cli/render/status-lines.ts'
import type { Approval } from '../../src/domain/approval.ts'
import type { Exile, ForcedFailover, LeaseState } from '../../src/domain/failover.ts'
import type { Run } from '../../src/domain/journal.ts'
import type { Sight } from '../../src/domain/loss.ts'
import { sampleEntry } from './fence-sample.ts'
import { QUIET_STATUS } from './status-sample.ts'

const printer: Printer = { style: new Chalk({ level: 0 }), isTerminal: true, columns: 80, write: () => undefined, line: () => undefined }
const text = (more: Partial<Status>) => statusText({ ...QUIET_STATUS, ...more }, printer)

const DARK_MS = 30_000
const CONFIG = {
  ...{ regions: ['region-a', 'region-b'].map(name => ({ name })), policy: { darkAfterMs: DARK_MS }, agent: { observeEveryMs: 1_000 } },
} as unknown as Parameters<typeof regionsSeen>[0]
const sight = (region: string, vantage: string, lastContactAgeMs: number | null, what: Sight['what'] = 'database'): Sight => ({
  ...{ region, vantage, what, lastContactAgeMs },
})
const seen = (...sights: readonly Sight[]) => text({ regions: regionsSeen(CONFIG, sights, []).map(r => ({ ...r, next: null })) })
const B = sight('region-b', 'agent one', 900)

describe('a region', () => {
  it('that every agent that looks has not reached for policy.darkAfter is dark, and status is not ok', () => {
    const found = seen(sight('region-a', 'agent one', 31_000), B)
    expect(found).toMatch(/^billing {2}attention .*\n {2}region-a is DARK$/m)
    expect(found).toContain('region-a: DARK, last contact 31.0 s ago (database, agent one)')
    expect(found).toContain('region-b: reached 900 ms ago (database, agent one)')
    // An agent that was here once, and reaches nothing any more, is not one that looks.
    expect(seen(sight('region-a', 'agent one', 31_000), sight('region-a', 'agent old', 9_000_000), B)).toContain('DARK')
    expect(seen(sight('region-a', 'agent one', null), B)).toContain('region-a: DARK, last contact never')
  })

  it('is reached while one agent reaches it, and the one that does not is named', () => {
    const found = seen(sight('region-a', 'agent one', 200), sight('region-a', 'agent two', 40_000), B, sight('region-b', 'agent two', 100))
    expect(found).toContain('region-a: reached 200 ms ago (database, agent one)\n  not reached by agent two: last 40.0 s ago')
    expect(found).toContain('  agent two does not reach region-a')
  })

  it('whose last look failed does not read as healthy before it is dark', () => {
    expect(seen(sight('region-a', 'agent one', 12_000), B)).toMatch(
      /attention[^]*region-a: NOT REACHED, last contact 12\.0 s ago .*; dark after/,
    )
    expect(seen(sight('region-a', 'agent one', 900), sight('region-a', 'agent one', 60_000, 'kafka'), B)).toContain(
      'its Kafka is NOT REACHED: last 1 min 0 s ago (kafka, agent one)',
    )
  })

  it('that nobody looks at is neither dark nor well', () => {
    expect(seen()).toContain('no agent looks at the regions: whether they answer is not known here')
    const stopped = seen(sight('region-a', 'agent one', 90_000), sight('region-b', 'agent one', 90_000))
    expect(stopped).not.toContain('DARK')
    expect(stopped).toMatch(
      /attention[^]*no agent reaches anything: none looks any more, or nothing answers\n\nregion-a: NOT KNOWN, last contact 1 min 30 s/,
    )
  })
})

const exile = (more: Partial<Exile>): Exile => ({
  ...{ id: 'e', region: 'region-a', runIds: ['run-1', 'run-2'], since: '2026-01-02T03:04:05.000Z', done: [], endedAt: null },
  ...{ undecided: 0, endedBy: null, endReason: null, ...more },
})
const failover = {
  ...{ id: 'f', runId: '0b3e5c5e-3f1f-4d52-9a37-0d0a27a6d0f1', source: 'region-a', target: 'region-b', fence: 'source-attested' },
  ...{ fenceObserved: '"pdu off", said by alice@vm at 2026-01-02T03:02:05Z', at: '2026-01-02T03:04:05.000Z', by: 'homeregion_operator' },
  acknowledgement: { kind: 'bound', boundMs: 37_000, by: 'homeregion_operator' },
  keys: Array.from({ length: 49 }, (_, nth) => ({ key: `tenant-${nth}`, recoverable: 0, unknown: { ms: 36_300, writes: 498 } })),
} as unknown as ForcedFailover
const forced = (more: Partial<Exile>, rest: Partial<ForcedStatus> = {}): ForcedStatus => ({
  ...{ exile: exile(more), failovers: [failover], approvals: [], lists: [], answers: true, ...rest },
})

describe('an exile', () => {
  it('of which nobody has compared the two sides says so, and not that nothing is undecided', () => {
    const found = text({ exiles: [forced({}, { answers: false })] })
    expect(found).toContain('EXILE region-a: 49 keys went region-a -> region-b')
    expect(found).toContain('not compared yet: how much only region-a has is not known')
    expect(found).not.toContain('0 undecided')
    expect(found).toContain('next: homeregion rejoin region-a --reason TEXT   (when it is back)')
    expect(found).toContain('lost, as estimated then: up to 36.3 s, at most 498 writes')
  })

  it('asks for what its state needs: a decision on a run that has something undecided, or its return', () => {
    const done = ['fenced', 'listed'] as const
    const undecided = text({
      exiles: [
        forced(
          { done, undecided: 12 },
          {
            lists: [
              { runId: 'run-1', found: 46, undecided: 12 },
              { runId: 'run-2', found: 0, undecided: 0 },
            ],
          },
        ),
      ],
    })
    expect(undecided).toContain('compared: 46 writes that only one side has, 12 undecided')
    expect(undecided).toContain('next: homeregion reconcile run-1 --undecided')
    const decided = text({ exiles: [forced({ done })] })
    expect(decided).toContain('compared: nothing that only one side has; not level yet')
    expect(decided).toMatch(/next: homeregion rejoin region-a --reason TEXT$/m)
  })

  it('marks the keys that stayed at home there', () => {
    const counts = [{ homeRegion: 'region-a', state: 'ACTIVE', keys: 1 }]
    const found = text({ counts, exiles: [forced({ done: ['fenced'] })] })
    expect(found).toMatch(/^region-a {2}ACTIVE, in exile {2}1$/m)
    expect(found.replace(/\s+/g, ' ')).toContain('nobody else has these keys of region-a; it is fenced, so that nobody can write them')
    expect(statusPaste({ ...QUIET_STATUS, counts, exiles: [forced({})] })).toContain('region-a  ACTIVE, in exile  1 key\n')
  })

  it('keeps its number of keys, its direction and what is undecided when it is pasted', () => {
    const pasted = statusPaste({
      ...QUIET_STATUS,
      exiles: [
        forced(
          { done: ['fenced', 'listed'], undecided: 12 },
          {
            lists: [
              { runId: 'run-1', found: 46, undecided: 12 },
              { runId: 'run-2', found: 0, undecided: 0 },
            ],
          },
        ),
      ],
    })
    expect(pasted).toContain(
      'EXILE region-a: 49 keys went region-a -> region-b\n  compared: 46 writes that only one side has, 12 undecided',
    )
    expect(pasted.replace(/\s+/g, ' ')).toContain('at 2026-01-02T03:04:05.000Z by homeregion_operator')
    expect(Math.max(...pasted.split('\n').map(line => line.length))).toBeLessThanOrEqual(72)
  })
})

describe('a lease', () => {
  const state = (more: Partial<LeaseState>): LeaseState => ({
    ...{ region: 'region-a', generation: 3, grantedTo: 'agent one', leftMs: 26_300, durationMs: 26_400, marginMs: 2_000 },
    ...{ withheldBy: null, stops: true, grantsKnown: true, ...more },
  })
  const line = (more: Partial<LeaseState> | null, onAgentOutage: RegionLease['onAgentOutage'] = 'stop') =>
    text({ leases: [{ region: 'region-a', onAgentOutage, state: more === null ? null : state(more) }] }).replace(/\s+/g, ' ')

  it('that is renewed is no alarm', () => {
    expect(line({})).toContain('ok')
    expect(line({})).toContain('lease of region-a: renewed 2.1 s ago; over in 26.3 s if no agent renews it')
  })

  it('that is over stops the region only where the region has said so', () => {
    expect(line({ leftMs: -3_000 })).toContain('NOT RENEWED, over for 3.0 s, its boundary refuses writes (grant 3)')
    expect(line({ leftMs: -3_000, stops: false })).toContain('its boundary refuses writes if it was installed with it')
    expect(line(null)).toContain('never granted, its boundary refuses writes if it was installed with it')
    expect(line({ leftMs: -3_000, stops: false }, 'keep')).toContain('configured to let it write on')
  })
})

it('an open run tells of all its keys, and how many are done', () => {
  const run = (outcomes: readonly Run['moves'][number]['outcome'][]): Run =>
    ({
      ...{ id: 'run-1', state: 'OPEN', runbookName: 'failover', intent: 'failover', holder: null, leaseAlive: true, leaseLeftMs: 9_000 },
      ...{ startedAt: 'then', startedBy: 'op' },
      moves: outcomes.map((outcome, nth) => ({ key: `tenant-${nth}`, source: 'region-a', target: 'region-b', outcome })),
    }) as unknown as Run
  expect(text({ openRuns: [run(Array<'moved'>(49).fill('moved'))] })).toContain('failover: 49 keys region-a -> region-b (49 moved)')
  expect(text({ openRuns: [run(['moved', null, null])] })).toContain('3 keys region-a -> region-b (1 moved, 2 not yet)')
  expect(text({ openRuns: [run([null])] })).toMatch(/failover: tenant-0 region-a -> region-b$/m)
})

it('a fence that stops keys and that nothing explains is no quiet state', () => {
  const fence = { ...sampleEntry({ event: 'applied' }), recordedAt: 'then', recordedBy: 'op' }
  expect(text({ fences: [{ ...fence, stops: 0 }] })).toMatch(/^billing {2}ok/)
  const found = text({ fences: [{ ...fence, stops: 50 }] })
  expect(found).toMatch(
    /attention[^]*50 keys at home in region-a, and no run or exile explains it\n {2}next: homeregion fence lift region-a --reason TEXT/,
  )
})

it('no line is longer than the terminal, whatever stands in the tables', () => {
  const key = { key: 'tenant-with-a-name-1234', homeRegion: 'region-a', epoch: 1234, state: 'CATCH_UP' as const, targetRegion: 'region-b' }
  const changed = { changedAt: '2026-01-02T03:04:05.000Z', changedBy: 'homeregion_operator' }
  const more = {
    keys: [{ ...key, ...changed, seq: 7, runId: 'run-1' }],
    history: [{ ...key, ...changed, seq: 7, transition: 'activate-forced' }],
    exiles: [forced({})],
  } as unknown as Partial<Status>
  expect(
    Math.max(
      ...text(more)
        .split('\n')
        .map(line => line.length),
    ),
  ).toBeLessThanOrEqual(80)
  expect(statusText({ ...QUIET_STATUS, ...more }, { ...printer, isTerminal: false })).toContain('homeregion_operator')
})

it('a drill that was begun and has not ended is shown, and how its keys come home', () => {
  const drill = {
    ...{ id: 'd', home: 'region-a', target: 'region-b', keys: ['canary-1', 'canary-2'], away: ['canary-1'], openRun: null },
    ...{ holder: { host: 'vm', pid: 1, user: 'op' }, at: 'then', by: 'op' },
  }
  const found = text({ unfinished: [drill] })
  expect(found).toMatch(/attention[^]*DRILL region-a -> region-b .* has not ended: 1 of 2 keys away\n {4}from region-a$/m)
  expect(found).toContain('next: homeregion drill --keys canary-1,canary-2')
})

describe('a forced failover that waits for others', () => {
  const policy = { approvers: ['alice', 'bob', 'carol'], needed: 2, aboveKeys: 0, since: 'then', starter: 'alice' }
  const run = {
    ...{ id: 'run-1', state: 'OPEN', runbookName: 'failover', intent: 'failover', holder: { user: 'alice', host: 'vm', pid: 1 } },
    ...{ leaseAlive: false, leaseLeftMs: -1, startedAt: 'then', startedBy: 'alice', moves: [] },
  } as unknown as Run
  const word = { runId: 'run-1', verdict: 'approved', reason: '', breakGlass: false, byStarter: false, at: 'now' } as const
  const waiting = (leaseAlive: boolean, ...approvals: readonly Approval[]) =>
    text({ openRuns: [{ ...run, leaseAlive }], consents: [{ runId: 'run-1', policy }], approvals })

  it('names who can agree, counts those whose word counts, and says whether anybody has to type on', () => {
    const one = waiting(false, { ...word, approver: 'bob' }, { ...word, approver: 'mallory' })
    expect(one).toContain('waits for approval: 1 of 2 (bob, carol)')
    expect(one).toContain('next: homeregion approve run-1   then   homeregion resume run-1')
    expect(waiting(true)).toContain('next: homeregion approve run-1   (it then goes on by itself)')
    expect(waiting(false, { ...word, approver: 'bob' }, { ...word, approver: 'carol' })).toContain('approved: 2 of 2')
  })

  it('says who broke the glass, and that a rejected run is only there to be ended', () => {
    const broken = waiting(false, { ...word, approver: 'alice', byStarter: true, breakGlass: true, reason: 'nobody else is awake' })
    expect(broken).toContain('approved: the glass was broken')
    expect(broken).toContain('BROKE THE GLASS: alice, who began the run, at now: nobody else is awake')
    const rejected = waiting(true, { ...word, verdict: 'rejected', approver: 'bob' })
    expect(rejected).toContain('next: homeregion abort run-1')
    expect(rejected).not.toContain('homeregion resume')
  })
})
