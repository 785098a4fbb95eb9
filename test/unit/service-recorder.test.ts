import { expect, test } from 'vitest'
import type { Acknowledged } from '../../sandbox/acknowledged.ts'
import { holds, nameOf, type RecordedEvent, type RegionHistory, verify } from '../../sandbox/recorder.ts'
import { writeStops } from '../../sandbox/write-stops.ts'

function ack(version: number, epoch: number, region: string, over: Partial<Acknowledged> = {}): Acknowledged {
  const at = version * 10
  return {
    idempotencyKey: `r${version}`,
    key: 'k',
    accountId: 'a',
    version,
    epoch,
    region,
    replayed: false,
    sentAtMs: at - 5,
    lastSentAtMs: at - 5,
    ackedAtMs: at,
    attempts: 1,
    ...over,
  }
}

function wrote(version: number, epoch: number, over: Partial<RecordedEvent> = {}): RecordedEvent {
  return { eventId: `e${version}`, key: 'k', aggregateId: 'a', version, epoch, idempotencyKey: `r${version}`, ...over }
}

function region(name: string, outbox: readonly RecordedEvent[], applied: readonly RecordedEvent[] = []): RegionHistory {
  const all = [...outbox, ...applied]
  return {
    region: name,
    outbox,
    inbox: new Set(applied.map(e => e.eventId)),
    versions: new Map([[nameOf('k', 'a'), Math.max(0, ...all.map(e => e.version))]]),
    idempotency: new Set(all.flatMap(e => (e.idempotencyKey === null ? [] : [nameOf(e.key, e.idempotencyKey)]))),
  }
}

const acks = [ack(1, 1, 'region-a'), ack(2, 1, 'region-a'), ack(3, 2, 'region-b')]
const a = [wrote(1, 1), wrote(2, 1)]
const barrier = wrote(0, 1, { eventId: 'b', idempotencyKey: null })
const log = [
  { key: 'k', epoch: 1, homeRegion: 'region-a' },
  { key: 'k', epoch: 2, homeRegion: 'region-b' },
]

test('a move that kept everything gives no finding', () => {
  const findings = verify(acks, [region('region-a', [...a, barrier]), region('region-b', [wrote(3, 2)], [...a, barrier])], log)
  expect(findings).toMatchObject({ acknowledged: 3, lost: [], doubled: [], versionGaps: [], overlaps: [], epochJumps: [] })
  expect(holds(findings)).toBe(true)
})

test('an acknowledged write that the new home never applied is lost', () => {
  const { lost } = verify(acks, [region('region-a', a), region('region-b', [wrote(3, 2)], [wrote(1, 1)])])
  expect(lost).toEqual(['k a version 2 (r2): at region-b the event was not applied, its idempotency record is missing'])
})

test('an acknowledged write that nobody holds is lost', () => {
  const { lost } = verify([ack(9, 1, 'region-a')], [region('region-a', a)])
  expect(lost).toEqual(['k a version 9 (r9): no region has written it'])
})

test('one idempotency key committed by two regions is doubled', () => {
  const { doubled } = verify([], [region('region-a', a), region('region-b', [wrote(3, 2, { idempotencyKey: 'r2' })], a)])
  expect(doubled).toHaveLength(1)
})

test('a gap, a repeat and an older epoch at a higher version are found', () => {
  expect(verify([], [region('region-a', [wrote(1, 1), wrote(3, 1)])]).versionGaps).toHaveLength(1)
  expect(verify([], [region('region-a', [wrote(1, 1)]), region('region-b', [wrote(1, 2, { eventId: 'z' })])]).versionGaps).toHaveLength(1)
  expect(verify([], [region('region-a', [wrote(1, 2), wrote(2, 1)])]).versionGaps).toHaveLength(1)
})

test('two regions that write under one epoch overlap', () => {
  expect(verify([], [region('region-a', a), region('region-b', [wrote(3, 1)], a)]).overlaps).toHaveLength(1)
})

test('a write sent after a later epoch had begun, and committed under the older one, is an overlap', () => {
  const late = ack(4, 1, 'region-a', { lastSentAtMs: 35, ackedAtMs: 40 })
  expect(verify([...acks, late], []).overlaps).toHaveLength(1)
})

test('an epoch that is skipped or repeated, and a write by a region that was not home, are found', () => {
  expect(verify([], [], [...log, { key: 'k', epoch: 4, homeRegion: 'region-a' }]).epochJumps).toHaveLength(1)
  expect(verify([], [], [...log, { key: 'k', epoch: 2, homeRegion: 'region-a' }]).epochJumps).toHaveLength(1)
  expect(verify([], [region('region-a', [wrote(3, 2)])], log).epochJumps).toHaveLength(1)
})

test('the write stop lasts from the last acknowledgement under the old epoch to the first under the new one', () => {
  const replay = ack(2, 1, 'region-a', { replayed: true, ackedAtMs: 900 })
  expect(writeStops([...acks, replay])).toMatchObject([
    { key: 'k', from: 'region-a', to: 'region-b', fromEpoch: 1, toEpoch: 2, stopMs: 10 },
  ])
})
