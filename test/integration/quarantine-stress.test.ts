import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import type pg from 'pg'
import { afterEach, describe, expect, test } from 'vitest'
import { IDEMPOTENCY, INBOX } from '../../sandbox/service-tables.ts'
import { createServicePool, type ServicePool } from '../../src/adapters/postgres/service-pool.ts'
import { BARRIER_EVENT_TYPE, type Envelope, headersOf, type ServiceEvent } from '../../src/service/envelope.ts'
import { type Applier, createInboxStore } from '../../src/service/inbox-apply.ts'
import { createHeldEvents } from '../../src/service/inbox-held.ts'
import { createInboxWorker } from '../../src/service/inbox-worker.ts'
import { type RegionFixture, secrets, startRegion } from './boundary-fixture.ts'

const VERSIONS = existsSync('/usr/lib/postgresql/15/bin/postgres') ? ([18, 15] as const) : ([18] as const)
const STRESS_MS = 8000
const KEY = 'hot'

// `xid` tells by which transaction a row was written. `control` is filled by a consumer that only reads ownership before it records: if the test
// cannot show late rows there, it is blind.
const PREPARE = `
  alter table inbox add column xid xid8 not null default pg_current_xact_id();
  create table effect (tenant_id text not null, owner_epoch bigint not null, event_id text not null, xid xid8 not null default pg_current_xact_id());
  create table control (owner_epoch bigint not null, xid xid8 not null default pg_current_xact_id());
  grant insert on effect, control to app_inbox;`

const applier: Applier = {
  understands: type => type === 'changed',
  apply: async (tx, event) => {
    await tx.query({
      sql: 'insert into effect (tenant_id, owner_epoch, event_id) values ($1, $2, $3)',
      parameters: [event.key, event.ownerEpoch, event.eventId],
    })
    return true
  },
  version: () => Promise.resolve(0),
}

function event(epoch: number, type: string): ServiceEvent {
  const envelope: Envelope = {
    eventId: randomUUID(),
    key: KEY,
    aggregateType: 'account',
    aggregateId: 'a',
    eventType: type,
    sourceRegion: 'region-b',
    homeRegion: 'region-b',
    ownerEpoch: epoch,
    aggregateVersion: 1,
    occurredAt: '2026-01-01T00:00:00Z',
  }
  const answer = type === 'changed' ? { id: envelope.eventId, response: null } : null
  return { ...envelope, data: null, answer, raw: { headers: headersOf(envelope), value: '{"data": null}' } }
}

let f: RegionFixture | undefined
const pools: ServicePool[] = []
afterEach(async () => {
  await Promise.all(pools.splice(0).map(async p => await p.close()))
  await f?.stop()
})

/** Takes events of epochs around the current one until `end`; what is held is tried again as the service does. Resolves to what it took. */
async function consume(region: RegionFixture, epoch: () => number, end: number): Promise<readonly ServiceEvent[]> {
  const login = { url: `postgres://app_inbox@127.0.0.1:${region.server.port}/app`, password: { env: 'PASSWORD' } }
  const pool = createServicePool({ login, secrets, name: 'region-a database', applicationName: 'inbox', size: 1, callTimeoutMs: 5000 })
  pools.push(pool)
  const held = createHeldEvents()
  const worker = createInboxWorker(createInboxStore(pool, INBOX, IDEMPOTENCY, applier), held)
  const taken: ServiceEvent[] = []
  for (let offset = 0n; performance.now() < end; offset += 1n) {
    const events = Array.from({ length: 1 + (Number(offset) % 3) }, (_, i) =>
      event(Math.max(1, epoch() - 2 + ((Number(offset) + i) % 4)), i % 2 === 0 ? 'changed' : BARRIER_EVENT_TYPE),
    )
    taken.push(...events)
    await worker.take(
      events.map(e => ({ event: e, feed: 0, generation: 1, partition: 0, offset })),
      () => true,
    )
    if (offset % 20n === 0n) worker.retryHeld()
  }
  const deadline = performance.now() + 10_000
  while (held.size > 0 && performance.now() < deadline) {
    worker.retryHeld()
    await worker.idle()
    await new Promise(resolve => setTimeout(resolve, 20))
  }
  expect(held.counts()).toEqual({ gap: 0, refused: 0, diverged: 0, waiting: 0, failed: 0 })
  return taken
}

/** Reads ownership, and records what that reading allows: right at every moment but the one that matters. */
async function consumeBlindly(client: pg.Client, epoch: () => number, end: number): Promise<void> {
  while (performance.now() < end) {
    const presented = Math.max(1, epoch() - 1)
    const { rows } = await client.query<{ home: string; epoch: string }>(`select home_region as home, epoch from homeregion.read('${KEY}')`)
    await new Promise(resolve => setTimeout(resolve, 2))
    if (rows[0]?.home === 'region-a' && presented < Number(rows[0].epoch)) continue
    await client.query('insert into control (owner_epoch) values ($1)', [presented])
  }
}

const LATE = (table: string, where: string) =>
  `select count(*)::int as n from ${table} t where owner_epoch < $1 and not pg_visible_in_snapshot(t.xid, $2::pg_snapshot) ${where}`

describe.each(VERSIONS)('on PostgreSQL %i', version => {
  test('while a key comes home and leaves again, no event of an older epoch is applied or recorded once it was home', async () => {
    f = await startRegion({
      version,
      prepare: PREPARE,
      guarded: [{ schema: 'public', table: 'effect', key: 'tenant_id', guard: 'row', versions: null }],
    })
    const region = f
    const admin = await region.login('postgres')
    await region.db.register([{ key: KEY, homeRegion: 'region-b', epoch: 1 }])
    let epoch = 1
    const end = performance.now() + STRESS_MS
    const consumers = [1, 2, 3].map(async () => await consume(region, () => epoch, end))
    const control = consumeBlindly(await region.login('app_inbox'), () => epoch, end)
    const found = { openings: 0, effects: 0, inbox: 0, control: 0 }
    const count = async (sql: string, parameters: readonly unknown[]) =>
      (await admin.query<{ n: number }>(sql, [...parameters])).rows[0]?.n ?? 0
    const untilDone = async (work: () => Promise<unknown>) => {
      // The key's lock was not free within a second of a busy machine.
      while (
        !(await work().then(
          () => true,
          (error: { retriable?: boolean }) => (error.retriable === true ? false : Promise.reject(error as Error)),
        ))
      );
    }
    const homes: { readonly epoch: number; readonly snapshot: string }[] = []
    for (let token = 1; performance.now() < end; token += 1) {
      await untilDone(async () => await region.db.open(KEY, epoch + 1, token))
      epoch += 1
      const snapshot = (await admin.query<{ s: string }>('select pg_current_snapshot()::text as s')).rows[0]?.s ?? ''
      homes.push({ epoch, snapshot })
      found.openings += 1
      await new Promise(resolve => setTimeout(resolve, 15))
      await untilDone(async () => await region.db.follow(KEY, 'region-b', epoch + 1, token))
      epoch += 1
      await new Promise(resolve => setTimeout(resolve, 15))
    }
    // The last word is a later epoch elsewhere, so that nothing is left that waits for one.
    await region.db.follow(KEY, 'region-b', epoch + 10, 1_000_000)
    const taken = (await Promise.all(consumers)).flat()
    await control
    for (const home of homes) {
      found.effects += await count(LATE('effect', ''), [home.epoch, home.snapshot])
      found.inbox += await count(
        LATE('inbox', 'and not exists (select from homeregion.quarantine q where q.event_id = t.event_id::text)'),
        [home.epoch, home.snapshot],
      )
      found.control += await count(LATE('control', ''), [home.epoch, home.snapshot])
    }
    const { rows } = await admin.query<{ inbox: number; kept: number; applied: number; both: number; records: number }>(
      `select (select count(*)::int from inbox) as inbox, (select count(*)::int from homeregion.quarantine) as kept,
              (select count(*)::int from effect) as applied, (select count(*)::int from idempotency) as records,
              (select count(*)::int from effect e join homeregion.quarantine q using (event_id)) as both`,
    )
    process.stdout.write(`${JSON.stringify({ version, late: found, taken: taken.length, held: rows[0] })}\n`)
    expect(found.openings).toBeGreaterThan(10)
    expect([found.effects, found.inbox, rows[0]?.both]).toEqual([0, 0, 0])
    expect(found.control).toBeGreaterThan(0)
    expect(rows[0]?.inbox).toBe(taken.length)
    expect(rows[0]?.kept).toBeGreaterThan(10)
    expect(rows[0]?.applied).toBeGreaterThan(10)
    // An answer is carried with what was applied, and with nothing else.
    expect(rows[0]?.records).toBe(rows[0]?.applied)
  })
})
