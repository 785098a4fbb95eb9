import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { killProcess } from '../../sandbox/processes.ts'
import { ADDRESS_CHANGED } from '../../sandbox/service-account.ts'
import { serviceName } from '../../sandbox/services.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { createEventPublisher, type EventPublisher, type OutboundEvent } from '../../src/adapters/kafka-region/event-publisher.ts'
import { createRegionStream } from '../../src/adapters/kafka-region/kafka-stream.ts'
import { createRegionDatabase } from '../../src/adapters/postgres-region/region-database.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { RegionDatabase, RegionStream } from '../../src/domain/ports.ts'
import { replicationBehind } from '../../src/engine/checks/transport.ts'
import { BARRIER_EVENT_TYPE, headersOf, payloadOf } from '../../src/service/envelope.ts'
import { useRig } from '../rig/use-rig.ts'
import { createFakeEngine, createManualClock } from '../unit/engine-fixture.ts'
import { registerKey, rigConfig } from './service-key.ts'

/** Events of region-a arrive at region-b's inbox after the key was opened there, as after a forced failover. */
const rig = useRig()
const secrets = createSecrets({})
let publisher: EventPublisher
let a: RegionDatabase
let b: RegionDatabase
let stream: RegionStream

beforeAll(() => {
  const password = rig.current.sandbox.secrets.read('region-a.kafka.app_service')
  const login = {
    brokers: rig.current.running.regions['region-a'].kafka.brokers,
    ssl: false,
    sasl: { mechanism: 'scram-sha-256' as const, username: 'app_service', password: { env: 'service' } },
  }
  publisher = createEventPublisher(
    { login, secrets: { read: () => Promise.resolve(password) }, name: 'region-a Kafka', clientId: 'test', callTimeoutMs: 5000 },
    'outbox.region-a',
  )
  const config = rigConfig(rig.current)
  const [first, second] = config.regions
  if (first === undefined || second === undefined) throw new Error('the rig has two regions')
  a = createRegionDatabase(first, config, secrets)
  b = createRegionDatabase(second, config, secrets)
  stream = createRegionStream(first, config, secrets)
})

afterAll(async () => {
  await Promise.all([publisher, a, b, stream].map(async open => await open?.close()))
})

async function newKey(): Promise<string> {
  const key = `late-${randomUUID().slice(0, 8)}`
  await registerKey(rig.current, key)
  return key
}

/** The end of a forced failover, at both boundaries. */
async function openAtB(key: string, epoch = 2): Promise<void> {
  await b.open(key, epoch, epoch)
  await a.follow(key, 'region-b', epoch, epoch)
}

type Made = { readonly id: string; readonly message: OutboundEvent }

function event(key: string, version: number, over: { epoch?: number; type?: string; value?: string } = {}): Made {
  const id = randomUUID()
  const headers = headersOf({
    eventId: id,
    key,
    aggregateType: 'account',
    aggregateId: 'account',
    eventType: over.type ?? ADDRESS_CHANGED,
    sourceRegion: 'region-a',
    homeRegion: 'region-a',
    ownerEpoch: over.epoch ?? 1,
    aggregateVersion: version,
    occurredAt: '2026-01-01T00:00:00.000000Z',
  })
  const value = over.value ?? JSON.stringify(payloadOf({ address: `street ${version}` }, { id: `request-${id}`, response: { version } }))
  return { id, message: { key, headers, value } }
}

async function publish(...events: readonly Made[]): Promise<void> {
  await publisher.publish(events.map(e => e.message))
}

async function seenAtB(key: string): Promise<{ version: number; inbox: readonly string[]; records: number }> {
  const db = await rig.current.pg('region-b')
  try {
    const { rows } = await db.query<{ version: number; inbox: string[]; records: number }>(
      `select coalesce((select version::int from account where tenant_id = $1), 0) as version,
              array(select event_id::text from inbox where tenant_id = $1 order by applied_at) as inbox,
              (select count(*)::int from idempotency where tenant_id = $1) as records`,
      [key],
    )
    if (rows[0] === undefined) throw new Error('no answer')
    return rows[0]
  } finally {
    await db.end()
  }
}

const kept = async (key: string, limit = 2000) => (await b.quarantined({ key, limit })).map(e => e.eventId)
const keptCount = async (key: string, count: number) => await waitUntil(async () => (await kept(key)).length >= count, 30_000)

type Stats = { readonly quarantined: number; readonly held: Readonly<Record<string, number>> }
async function stats(): Promise<Stats> {
  return ((await (await fetch(`${rig.current.serviceUrl('region-b')}/stats`)).json()) as { inbox: Stats }).inbox
}

async function caughtUp(): Promise<boolean> {
  return await waitUntil(async () => (await stream.outboxEnds('inbox-region-b')).every(e => e.end === '0' || e.end === e.committed), 20_000)
}

test('what comes after the key was opened here is kept, whatever its version or kind, applied never, and its offset is committed', async () => {
  const key = await newKey()
  const before = await stats()
  const inTime = event(key, 1)
  await publish(inTime)
  expect(await waitUntil(async () => (await seenAtB(key)).version === 1, 20_000)).toBe(true)
  await openAtB(key)
  const late = [
    event(key, 2),
    event(key, 1),
    event(key, 9),
    event(key, 0, { type: BARRIER_EVENT_TYPE }),
    event(key, 3, { type: 'strange' }),
  ]
  await publish(inTime, ...late, inTime, ...late)
  expect(await keptCount(key, late.length)).toBe(true)
  expect(await caughtUp()).toBe(true)
  expect((await kept(key)).sort()).toEqual(late.map(e => e.id).sort())
  const seen = await seenAtB(key)
  expect([seen.version, seen.records, [...seen.inbox].sort()]).toEqual([1, 1, [inTime, ...late].map(e => e.id).sort()])
  const after = await stats()
  expect(after.quarantined - before.quarantined).toBe(late.length)
  expect(Object.values(after.held).every(n => n === 0)).toBe(true)
  expect(await b.inboxHas(late[3]?.id ?? '')).toBe(false)

  // Home again elsewhere: the cut that was made stays a cut, and what the new home writes is applied.
  await b.follow(key, 'region-a', 3, 3)
  const [older, next] = [event(key, 2), event(key, 2, { epoch: 3 })]
  await publish(older, next)
  expect(await waitUntil(async () => (await seenAtB(key)).version === 2, 20_000)).toBe(true)
  expect([(await kept(key)).includes(older.id), (await kept(key)).includes(next.id)]).toEqual([true, false])
})

test('an event that was held for one before it goes to quarantine when the key is opened, and stops its partition no more', async () => {
  const key = await newKey()
  const [early, barrier] = [event(key, 2), event(key, 0, { type: BARRIER_EVENT_TYPE })]
  await publish(early, barrier)
  expect(await waitUntil(async () => ((await stats()).held['gap'] ?? 0) > 0, 20_000)).toBe(true)
  await openAtB(key)
  expect(await keptCount(key, 2)).toBe(true)
  expect(await caughtUp()).toBe(true)
  expect(await seenAtB(key)).toMatchObject({ version: 0, records: 0 })
})

test('the payload is kept as it came: as PostgreSQL reads the text, or the text itself where it is no JSON', async () => {
  const key = await newKey()
  await openAtB(key)
  const values = [
    '{"data": {"n": 12345678901234567890.10, "text": "né \\u2603"}, "extra": [1.0, 1e2]}',
    'not json',
    '{"a": "\\u0000"}',
    `bin ${String.fromCharCode(0)} ary`,
    '',
  ]
  const events = values.map((value, i) => event(key, i + 1, { value }))
  await publish(...events)
  expect(await keptCount(key, events.length)).toBe(true)
  const rows = new Map((await b.quarantined({ key, limit: 10 })).map(e => [e.eventId, e.payload]))
  const [numbers, ...others] = events.map(e => rows.get(e.id) ?? null)
  const db = await rig.current.pg('region-b')
  const { rows: same } = await db.query('select $1::jsonb::text as text', [values[0]])
  await db.end()
  expect(numbers).toBe((same[0] as { text: string }).text)
  expect(numbers).toContain('12345678901234567890.10')
  expect(
    others.map(p =>
      p === null ? null : Buffer.from((JSON.parse(p) as Record<string, string>)['homeregion.base64'] ?? '', 'base64').toString(),
    ),
  ).toEqual([...values.slice(1, 4), null])
})

test('a thousand late events and a kill -9 in the middle: each is kept once, none applied, and the others of the partition go on', async () => {
  const [key, other] = [await newKey(), await newKey()]
  await openAtB(key)
  const late = Array.from({ length: 1000 }, (_, i) => event(key, i + 1))
  const others = [1, 2, 3].map(version => event(other, version))
  const publishing = (async () => {
    for (let from = 0; from < late.length; from += 50) await publish(...late.slice(from, from + 50))
    await publish(...others)
  })()
  expect(await waitUntil(async () => (await kept(key)).length > 100, 30_000)).toBe(true)
  const running = rig.current.sandbox.processes.find(serviceName('region-b'))
  if (running === null) throw new Error('no service of region-b')
  await killProcess(running)
  const atTheKill = (await kept(key)).length
  await publishing
  await rig.current.sandbox.restartService('region-b', rig.current.running)
  const started = performance.now()
  expect(await keptCount(key, late.length)).toBe(true)
  expect(await waitUntil(async () => (await seenAtB(other)).version === 3, 20_000)).toBe(true)
  expect(await caughtUp()).toBe(true)
  process.stdout.write(`${JSON.stringify({ atTheKill, restMs: Math.round(performance.now() - started) })}\n`)
  expect((await kept(key)).sort()).toEqual(late.map(e => e.id).sort())
  const seen = await seenAtB(key)
  expect([seen.version, seen.records, [...seen.inbox].sort()]).toEqual([0, 0, late.map(e => e.id).sort()])
})

test('the relay’s publisher sends a key where the stream says, and a held event there stops the keys of its own partition only', async () => {
  const partitions = (await stream.outboxEnds('inbox-region-b')).length
  expect(partitions).toBeGreaterThan(1)
  const stalled = await newKey()
  const partition = stream.partitionOf(stalled, partitions)
  const ends = async () => new Map((await stream.outboxEnds('inbox-region-b')).map(e => [e.partition, Number(e.end)]))
  // What earlier tests sent is committed: an offset that still moves is no stall.
  expect(await caughtUp()).toBe(true)
  const before = await ends()
  const [first, second] = [event(stalled, 1), event(stalled, 2)]
  await publish(second)
  const after = await ends()
  expect([...after].filter(([p, end]) => end !== before.get(p)).map(([p]) => p)).toEqual([partition])
  expect(await waitUntil(async () => ((await stats()).held['gap'] ?? 0) > 0, 20_000)).toBe(true)

  const keys = Array.from({ length: 40 }, (_, i) => `elsewhere-${i}`)
  const same = keys.find(key => stream.partitionOf(key, partitions) === partition) ?? ''
  const free = keys.find(key => stream.partitionOf(key, partitions) !== partition) ?? ''
  const clock = createManualClock()
  const engine = { ...createFakeEngine([a, b], {}, clock), stream: () => stream }
  engine.policy = { ...engine.policy, inboxGroup: region => `inbox-${region}` }
  const looking = (key: string) => {
    const move = { key, source: 'region-a', target: 'region-b', epoch: 1, seq: 1 }
    const subject = { moves: [move], move, barrierEventId: null, startedMonotonicMs: 0, standing: [], memory: new Map<string, unknown>() }
    return async () => await replicationBehind(engine, subject, { check: 'replication-behind', parameters: { atMost: 2000 } })
  }
  const [seeFree, seeSame] = [looking(free), looking(same)]
  expect(await waitUntil(async () => (await seeFree()).verdict === 'pass', 20_000)).toBe(true)
  expect((await seeSame()).verdict).toBe('unknown')
  clock.advance(2001)
  expect(await seeSame()).toMatchObject({
    verdict: 'fail',
    observed: expect.stringContaining(`partition ${partition}, where the events of ${same} go`) as string,
  })
  await publish(first)
  expect(await caughtUp()).toBe(true)
})
