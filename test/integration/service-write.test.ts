import { randomUUID } from 'node:crypto'
import { beforeAll, expect, test } from 'vitest'
import { createLoadClient } from '../../sandbox/load-client.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { useRig } from '../rig/use-rig.ts'
import { registerKey } from './service-key.ts'

const rig = useRig()
const client = createLoadClient(5000)
const key = `service-write-${randomUUID().slice(0, 8)}`

beforeAll(async () => {
  await registerKey(rig.current, key)
})

const order = (idempotencyKey: string, over: { epoch?: number; tenant?: string } = {}) => ({
  tenant: over.tenant ?? key,
  accountId: 'account',
  idempotencyKey,
  epoch: over.epoch ?? null,
  address: 'street 1',
})

test('a write commits row, event and idempotency record together, and a repeated one is answered from the record', async () => {
  const first = await client.write(rig.current.serviceUrl('region-a'), order('first'))
  expect(first).toMatchObject({ kind: 'acknowledged', version: 1, epoch: 1, region: 'region-a', replayed: false })
  const again = await client.write(rig.current.serviceUrl('region-a'), order('first'))
  expect(again).toMatchObject({ kind: 'acknowledged', version: 1, replayed: true })

  const db = await rig.current.pg('region-a')
  const { rows } = await db.query<{ rows: number; events: number; records: number }>(
    `select (select count(*)::int from account where tenant_id = $1) as rows,
      (select count(*)::int from outbox where tenant_id = $1 and owner_epoch = 1 and home_region = 'region-a') as events,
      (select count(*)::int from idempotency where tenant_id = $1) as records`,
    [key],
  )
  expect(rows).toEqual([{ rows: 1, events: 1, records: 1 }])
})

test('one idempotency key sent many times at once is committed once', async () => {
  const answers = await Promise.all(
    Array.from({ length: 8 }, async () => await client.write(rig.current.serviceUrl('region-a'), order('at-once'))),
  )
  const versions = answers.map(a => (a.kind === 'acknowledged' ? a.version : a))
  expect(new Set(versions).size).toBe(1)
  expect(answers.filter(a => a.kind === 'acknowledged' && !a.replayed)).toHaveLength(1)
})

test('a write under another epoch than the current one is refused, and leaves nothing', async () => {
  for (const epoch of [0, 2]) {
    const answer = await client.write(rig.current.serviceUrl('region-a'), order(`stale-${epoch}`, { epoch }))
    expect(answer).toMatchObject({ kind: 'refused', error: 'staleEpoch', sqlstate: 'HR002', homeRegion: 'region-a', epoch: 1 })
  }
  const db = await rig.current.pg('region-a')
  const { rowCount } = await db.query(`select from idempotency where tenant_id = $1 and idempotency_key like 'stale-%'`, [key])
  expect(rowCount).toBe(0)
})

test('a key that nobody registered cannot be written', async () => {
  const answer = await client.write(rig.current.serviceUrl('region-a'), order('x', { tenant: 'nobody-knows-me' }))
  expect(answer).toMatchObject({ kind: 'refused', error: 'unknownKey', sqlstate: 'HR003' })
})

test('a region that is not home names the home, and forwards once it knows it', async () => {
  const url = rig.current.serviceUrl('region-b')
  // The first one may be refused by the boundary, which teaches the gateway; no later than the second one is forwarded.
  const answers = [await client.write(url, order('forwarded')), await client.write(url, order('forwarded'))]
  for (const a of answers.filter(x => x.kind === 'refused')) expect(a).toMatchObject({ error: 'notHome', homeRegion: 'region-a' })
  expect(answers.at(-1)).toMatchObject({ kind: 'acknowledged', region: 'region-a' })
})

test('an event reaches the other region with its row, its id and the carried answer', async () => {
  const db = await rig.current.pg('region-b')
  const carried = async () => {
    const { rows } = await db.query<{ version: number; answer: unknown }>(
      `select a.version::int as version, i.response as answer from account a
       join idempotency i on i.tenant_id = a.tenant_id and i.idempotency_key = 'first' where a.tenant_id = $1`,
      [key],
    )
    return rows[0]
  }
  expect(await waitUntil(async () => (await carried())?.version === 3, 20_000)).toBe(true)
  expect((await carried())?.answer).toMatchObject({ version: 1, epoch: 1, region: 'region-a' })
})

test('an event whose row commits late, with a lower position than one already published, is published all the same', async () => {
  const [writer, db] = [await rig.current.pg('region-a', 'app_writer'), await rig.current.pg('region-b')]
  const late = randomUUID()
  await writer.query('begin')
  await writer.query(
    `insert into outbox (event_id, tenant_id, aggregate_type, aggregate_id, event_type, source_region, home_region, owner_epoch, aggregate_version, occurred_at)
     values ($1, $2, 'other', 'o', 'other.event', 'region-a', 'region-a', 1, 1, clock_timestamp())`,
    [late, key],
  )
  const after = await client.write(rig.current.serviceUrl('region-a'), order('after'))
  expect(after.kind).toBe('acknowledged')
  const seen = async (id: string) => ((await db.query('select from inbox where event_id = $1', [id])).rowCount ?? 0) > 0
  const versionAt = async () =>
    (await db.query<{ v: number }>('select version::int as v from account where tenant_id = $1', [key])).rows[0]?.v
  expect(await waitUntil(async () => (await versionAt()) === (after.kind === 'acknowledged' ? after.version : -1), 20_000)).toBe(true)
  expect(await seen(late)).toBe(false)
  await writer.query('commit')
  expect(await waitUntil(async () => await seen(late), 20_000)).toBe(true)
})
