import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ADDRESS_CHANGED } from '../../sandbox/service-account.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { createEventPublisher, type EventPublisher } from '../../src/adapters/kafka-region/event-publisher.ts'
import { BARRIER_EVENT_TYPE, headersOf, payloadOf } from '../../src/service/envelope.ts'
import { useRig } from '../rig/use-rig.ts'
import { registerKey } from './service-key.ts'

/** Events are put on region-a's outbox topic directly, as a relay that repeats itself or comes late would; region-b's inbox reads them. */
const rig = useRig()
let publisher: EventPublisher | undefined

beforeAll(() => {
  const password = rig.current.sandbox.secrets.read('region-a.kafka.app_service')
  publisher = createEventPublisher(
    {
      login: {
        brokers: rig.current.running.regions['region-a'].kafka.brokers,
        ssl: false,
        sasl: { mechanism: 'scram-sha-256', username: 'app_service', password: { env: 'service' } },
      },
      secrets: { read: () => Promise.resolve(password) },
      name: 'region-a Kafka',
      clientId: 'test',
      callTimeoutMs: 5000,
    },
    'outbox.region-a',
  )
})

afterAll(async () => {
  await publisher?.close()
})

async function newKey(): Promise<string> {
  const key = `inbox-${randomUUID().slice(0, 8)}`
  await registerKey(rig.current, key)
  return key
}

function event(key: string, version: number, over: { epoch?: number; type?: string; id?: string } = {}) {
  const eventId = over.id ?? randomUUID()
  const headers = headersOf({
    eventId,
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
  const answer = over.type === undefined ? { id: `request-${version}`, response: { version } } : null
  return { id: eventId, message: { key, headers, value: JSON.stringify(payloadOf({ address: `street ${version}` }, answer)) } }
}

type Seen = { readonly version: number; readonly ids: readonly string[]; readonly records: number }

async function seenAtB(key: string): Promise<Seen> {
  const db = await rig.current.pg('region-b')
  try {
    const account = await db.query<{ version: number }>('select version::int as version from account where tenant_id = $1', [key])
    const inbox = await db.query<{ id: string }>('select event_id::text as id from inbox where tenant_id = $1 order by applied_at', [key])
    const records = await db.query('select from idempotency where tenant_id = $1', [key])
    return { version: account.rows[0]?.version ?? 0, ids: inbox.rows.map(r => r.id), records: records.rowCount ?? 0 }
  } finally {
    await db.end()
  }
}

async function held(): Promise<Record<string, number>> {
  const response = await fetch(`${rig.current.serviceUrl('region-b')}/stats`)
  return ((await response.json()) as { inbox: { held: Record<string, number> } }).inbox.held
}

test('a barrier that is delivered twice, and after events of the next epoch, is applied once; order is kept', async () => {
  const key = await newKey()
  const [one, two, three] = [event(key, 1), event(key, 2, { epoch: 2 }), event(key, 3, { epoch: 2 })]
  const barrier = event(key, 0, { type: BARRIER_EVENT_TYPE })
  await publisher?.publish([one, barrier, two, barrier, three, one, barrier].map(e => e.message))
  expect(await waitUntil(async () => (await seenAtB(key)).version === 3, 20_000)).toBe(true)
  expect(await seenAtB(key)).toEqual({ version: 3, ids: [one.id, barrier.id, two.id, three.id], records: 3 })
})

test('an event that is early is held in sight, with the barrier behind it, and applied when the missing one arrives', async () => {
  const key = await newKey()
  const [one, two] = [event(key, 1), event(key, 2)]
  const barrier = event(key, 0, { type: BARRIER_EVENT_TYPE })
  await publisher?.publish([two.message, barrier.message])
  expect(await waitUntil(async () => ((await held())['gap'] ?? 0) > 0, 20_000)).toBe(true)
  expect(await seenAtB(key)).toEqual({ version: 0, ids: [], records: 0 })
  await publisher?.publish([one.message])
  expect(await waitUntil(async () => (await seenAtB(key)).ids.length === 3, 20_000)).toBe(true)
  expect((await seenAtB(key)).ids).toEqual([one.id, two.id, barrier.id])
  expect(await waitUntil(async () => Object.values(await held()).every(n => n === 0), 5000)).toBe(true)
})

test('the id of an event of a kind it does not understand is recorded', async () => {
  const key = await newKey()
  const strange = event(key, 1, { type: 'invoice.printed' })
  await publisher?.publish([strange.message])
  expect(await waitUntil(async () => (await seenAtB(key)).ids.includes(strange.id), 20_000)).toBe(true)
  expect((await seenAtB(key)).version).toBe(0)
})
