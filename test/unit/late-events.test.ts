import { Chalk } from 'chalk'
import { expect, test } from 'vitest'
import type { Printer } from '../../src/cli/context.ts'
import { lateEvents } from '../../src/cli/late-events.ts'
import { type Status, statusJson, statusPaste, statusText } from '../../src/cli/render/status.ts'
import { HomeregionError } from '../../src/domain/errors.ts'
import type { Exile, ForcedFailover, ReconcileItem } from '../../src/domain/failover.ts'
import type { ControlPlane, RegionDatabase } from '../../src/domain/ports.ts'
import type { QuarantinedEvent } from '../../src/domain/quarantine.ts'
import { QUIET_STATUS } from './status-sample.ts'

type Count = ReturnType<RegionDatabase['quarantineCount']>

const printer: Printer = { style: new Chalk({ level: 0 }), isTerminal: false, columns: 100, write: () => undefined, line: () => undefined }
const REGIONS = { topology: 'independent', regions: ['region-a', 'region-b', 'region-c'].map(name => ({ name })) } as unknown as Parameters<
  typeof lateEvents
>[1]
const exile = (endedAt: string | null, undecided = 0): Exile => ({
  ...{ id: 'e', region: 'region-a', runIds: ['run-1', 'run-2'], since: 'then', done: [], undecided, endedAt },
  ...{ endedBy: null, endReason: null },
})
const event = (nth: number) => ({ eventId: `event-${nth}`, key: 'one' }) as QuarantinedEvent
const world = (counts: Readonly<Record<string, () => Count>>, lists: Readonly<Record<string, readonly string[]>> = {}) => ({
  region: (name: string) =>
    ({
      quarantineCount: counts[name] ?? (() => Promise.reject(new Error('nobody was to be asked'))),
      quarantined: async () => Array.from({ length: (await counts[name]?.())?.undecided ?? 0 }, (_, nth) => event(nth)),
    }) as unknown as RegionDatabase,
  controlPlane: {
    forcedFailovers: () => Promise.resolve([{ runId: 'run-1', target: 'region-b', keys: [{ key: 'one' }] }] as unknown as ForcedFailover[]),
    reconcileItems: (runId: string) =>
      Promise.resolve((lists[runId] ?? []).map(eventId => ({ content: { eventId } }) as unknown as ReconcileItem)),
    reconcileCounts: (runIds: readonly string[]) =>
      Promise.resolve(runIds.map(runId => ({ runId, found: lists[runId]?.length ?? 0, undecided: lists[runId]?.length ?? 0 }))),
  } satisfies Pick<ControlPlane, 'forcedFailovers' | 'reconcileItems' | 'reconcileCounts'>,
})
const counted = (undecided: number) => () => Promise.resolve({ total: 9, undecided })
const dark = () => Promise.reject(new HomeregionError('region-unreachable', { fact: 'region-c database does not answer' }))

function status(late: Status['late']): Status {
  return { ...QUIET_STATUS, late, degraded: late.length > 0 }
}

test('late events are shown where some are undecided, and a region that cannot be asked is not called clean', async () => {
  const late = await lateEvents(world({ 'region-a': counted(0), 'region-b': counted(3), 'region-c': dark }), REGIONS, [exile('ended')])
  const lines = [
    'late events in region-b: 3 undecided, kept and not applied',
    '  none is on the list yet',
    '  next: homeregion reconcile run-1',
    'late events in region-c: not seen (region-c database does not answer)',
  ]
  for (const text of [statusText(status(late), printer), statusPaste(status(late))]) expect(text).toContain(lines.join('\n'))
  expect(JSON.parse(statusJson(status(late)))).toMatchObject({ late: [{ region: 'region-b', undecided: 3 }, { undecided: null }] })
})

test('where nothing is undecided, or there was never a forced failover, status says nothing of late events', async () => {
  const clean = world({ 'region-a': counted(0), 'region-b': counted(0), 'region-c': counted(0) })
  expect(await lateEvents(clean, REGIONS, [exile(null)])).toEqual([])
  expect(await lateEvents(world({}), REGIONS, [])).toEqual([])
  expect(statusPaste(status([]))).not.toContain('late events')
})

test('a region that does not answer is not waited for, and while one is in exile its return is what lists them', async () => {
  const silent = () => new Promise<never>(() => undefined)
  const late = await lateEvents(world({ 'region-a': silent, 'region-b': counted(1), 'region-c': counted(0) }), REGIONS, [exile(null)])
  expect(late).toMatchObject([
    { region: 'region-a', undecided: null, why: expect.stringMatching(/^no answer within/) as string },
    { undecided: 1, next: 'homeregion rejoin region-a --reason TEXT' },
  ])
})

test('late events that stand on a list are said to be the same, and that list is what is decided, whichever run of the exile has it', async () => {
  const counts = { 'region-a': counted(0), 'region-b': counted(3), 'region-c': counted(0) }
  const of = async (lists: Readonly<Record<string, readonly string[]>>) =>
    statusText(status(await lateEvents(world(counts, lists), REGIONS, [exile(null, 3)])), printer)
  const all = await of({ 'run-1': ['event-0', 'event-1', 'event-2', 'other'], 'run-2': [] })
  expect(all).toContain('the same are on the list of run run-1: one decision closes both')
  expect(all).toContain('next: homeregion reconcile run-1 --undecided')
  expect(await of({ 'run-2': ['event-1'] })).toContain('1 on the list of run run-2 as well, 2 on none yet')
})
