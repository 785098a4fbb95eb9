import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'

const VERSIONS = existsSync('/usr/lib/postgresql/15/bin/postgres') ? ([18, 15] as const) : ([18] as const)

function envelope(key: string, epoch: number, over: Record<string, string> = {}): Record<string, string> {
  return {
    event_id: randomUUID(),
    key,
    aggregate_type: 'account',
    aggregate_id: 'a',
    event_type: 'account.address-changed',
    source_region: 'region-b',
    home_region: 'region-b',
    owner_epoch: String(epoch),
    aggregate_version: '7',
    occurred_at: '2026-01-01T00:00:00.000001Z',
    traceparent: '00-1',
    ...over,
  }
}

describe.each(VERSIONS)('on PostgreSQL %i', version => {
  let f: RegionFixture
  let consumer: pg.Client
  beforeAll(async () => {
    f = await startRegion({ version })
    consumer = await f.login('app_inbox')
    await f.db.register([
      { key: 'here', homeRegion: 'region-a', epoch: 5 },
      { key: 'elsewhere', homeRegion: 'region-b', epoch: 5 },
    ])
  })
  afterAll(async () => await f?.stop())

  const keep = async (headers: Record<string, string>, payload: string | null = '{}'): Promise<unknown> =>
    (await consumer.query<{ outcome: string }>('select homeregion.quarantine_event($1, $2) as outcome', [JSON.stringify(headers), payload]))
      .rows[0]?.outcome
  const late = async (key: string, epochs: readonly number[]): Promise<readonly number[]> =>
    (
      await consumer.query<{ place: number }>('select place from homeregion.late_events($1, $2) as place', [epochs.map(() => key), epochs])
    ).rows.map(r => r.place)
  const inQuarantine = async (key: string) => await f.db.quarantined({ key, limit: 100 })

  test('an event is kept only when its key is at home here under a later epoch; else it is the caller’s to apply', async () => {
    expect([await keep(envelope('here', 4)), await keep(envelope('here', 5)), await keep(envelope('here', 6))]).toEqual([
      'quarantined',
      'apply',
      'apply',
    ])
    expect([await keep(envelope('elsewhere', 4)), await keep(envelope('nobody', 1))]).toEqual(['apply', 'apply'])
    expect(await late('here', [6, 4, 5, 1])).toEqual([2, 4])
    expect([await late('elsewhere', [1]), await late('nobody', [1])]).toEqual([[], []])
    const [kept, ...others] = await inQuarantine('here')
    expect(others).toEqual([])
    expect(kept).toMatchObject({ ownerEpoch: 4, currentEpoch: 5, sourceRegion: 'region-b', aggregateVersion: 7, decided: null })
    expect(kept?.envelope).toMatchObject({ traceparent: '00-1', owner_epoch: '4' })
  })

  test('what came too late while the key was home stays too late when it is being given away, and after it has left', async () => {
    const key = 'traveller'
    await f.db.register([{ key, homeRegion: 'region-a', epoch: 5 }])
    await f.db.drain(key, 5, 1)
    expect(await late(key, [4, 5])).toEqual([1])
    await f.db.fence(key, 5, 1, randomUUID())
    expect(await late(key, [4, 5])).toEqual([1])
    await f.db.follow(key, 'region-b', 6, 1)
    expect([await late(key, [4, 5, 6]), await keep(envelope(key, 4)), await keep(envelope(key, 5))]).toEqual([[1], 'quarantined', 'apply'])
    await f.db.open(key, 9, 2)
    expect(await late(key, [8, 9])).toEqual([1])
    await f.db.follow(key, 'region-b', 10, 3)
    expect(await late(key, [8, 9, 10])).toEqual([1])
    expect((await inQuarantine(key)).map(e => e.currentEpoch)).toEqual([5])
  })

  test('a second delivery is known, and changes nothing of the first', async () => {
    const first = envelope('here', 3)
    expect(await keep(first, '{"n": 1}')).toBe('quarantined')
    expect(await keep({ ...first, owner_epoch: '2' }, '{"n": 2}')).toBe('known')
    const kept = (await inQuarantine('here')).filter(e => e.eventId === first['event_id'])
    expect(kept).toMatchObject([{ ownerEpoch: 3, payload: '{"n": 1}' }])
  })

  test.each([
    ['a number longer than JavaScript’s', '{"n": 12345678901234567890.1230, "b": "é\\u00e9", "a": [1.0, 1e3]}', null],
    ['no value', null, null],
    ['no JSON', 'not json {', 'not json {'],
    ['an escape that jsonb refuses', '{"a": "\\u0000"}', '{"a": "\\u0000"}'],
    ['nesting that is too deep', '['.repeat(200_000), '['.repeat(200_000)],
    ['a number beyond numeric', '1e999999', '1e999999'],
  ])('keeps the payload as PostgreSQL reads it, else as it came: %s', async (_name, payload, base64) => {
    const headers = envelope('here', 2)
    expect(await keep(headers, payload)).toBe('quarantined')
    const { rows } = await (await f.login('postgres')).query<{ same: boolean; text: string | null }>(
      `select payload is not distinct from ${base64 === null ? '$2::jsonb' : `jsonb_build_object('homeregion.base64', $2::text)`} as same
       from homeregion.quarantine where event_id = $1`,
      [headers['event_id'], base64 === null ? payload : Buffer.from(base64).toString('base64')],
    )
    expect(rows).toMatchObject([{ same: true }])
  })

  test('an envelope that cannot be read whole is kept as it came; one without id, key or epoch is refused', async () => {
    const odd = envelope('here', 1, { aggregate_version: 'seven', occurred_at: 'yesterday-ish', key: 'here' })
    expect(await keep(odd)).toBe('quarantined')
    const kept = (await inQuarantine('here')).find(e => e.eventId === odd['event_id'])
    expect(kept).toMatchObject({ aggregateVersion: null, occurredAt: null, envelope: { aggregate_version: 'seven' } })
    for (const missing of ['event_id', 'key', 'owner_epoch'])
      await expect(keep(Object.fromEntries(Object.entries(odd).filter(([name]) => name !== missing)))).rejects.toMatchObject({
        code: '22004',
      })
  })

  test('only consumers may keep events, the operator reads and decides, and nobody writes the table', async () => {
    const writer = await f.login('app_writer')
    const operator = await f.login('homeregion_operator')
    for (const client of [writer, operator])
      await expect(client.query(`select homeregion.quarantine_event('{}', '')`)).rejects.toMatchObject({ code: '42501' })
    for (const client of [writer, consumer])
      await expect(client.query(`select homeregion.decide_quarantined('{}', 'r', 'drop', 'x')`)).rejects.toMatchObject({ code: '42501' })
    for (const client of [writer, consumer, operator])
      for (const sql of [
        'delete from homeregion.quarantine',
        'delete from homeregion.left_home',
        'update homeregion.quarantine set reason = $$x$$',
      ])
        await expect(client.query(sql)).rejects.toMatchObject({ code: '42501' })
    await expect(writer.query('select from homeregion.quarantine')).rejects.toMatchObject({ code: '42501' })
  })

  test('a snapshot that may be stale cannot ask', async () => {
    for (const isolation of ['repeatable read', 'serializable'])
      for (const sql of [`select homeregion.late_events('{here}', '{1}')`, `select homeregion.quarantine_event('{}', '')`]) {
        await consumer.query(`begin isolation level ${isolation}`)
        await expect(consumer.query(sql)).rejects.toMatchObject({ code: 'HR006' })
        await consumer.query('rollback')
      }
  })

  test('a decision is made once, with run, reason and login, and stands', async () => {
    const headers = envelope('decided', 1)
    await f.db.register([{ key: 'decided', homeRegion: 'region-a', epoch: 2 }])
    await keep(headers)
    const ids = [headers['event_id'] ?? '', randomUUID()]
    const before = await f.db.quarantineCount()
    await expect(f.db.decideQuarantined(ids, { runId: 'run-1', decision: 'drop', reason: '' })).rejects.toThrow()
    const [first, ...more] = await f.db.decideQuarantined(ids, { runId: 'run-1', decision: 'drop', reason: 'paid twice' })
    expect(more).toEqual([])
    expect(first?.decided).toMatchObject({ runId: 'run-1', decision: 'drop', reason: 'paid twice', by: 'homeregion_operator' })
    expect(await f.db.decideQuarantined(ids, { runId: 'run-2', decision: 'exported', reason: 'other' })).toEqual([first])
    expect(await f.db.quarantineCount()).toEqual({ total: before.total, undecided: before.undecided - 1 })
    expect([
      (await f.db.quarantined({ key: 'decided', undecided: true, limit: 10 })).length,
      (await inQuarantine('decided')).length,
    ]).toEqual([0, 1])
  })

  test('doctor sees that keys which leave are not remembered any more', async () => {
    const admin = await f.login('postgres')
    expect((await f.db.facts()).guardProblems).toEqual([])
    await admin.query('alter table homeregion.ownership disable trigger zzz_homeregion_left')
    expect((await f.db.facts()).guardProblems).toEqual(['homeregion.ownership: trigger zzz_homeregion_left is missing or disabled'])
    await admin.query('alter table homeregion.ownership enable always trigger zzz_homeregion_left')
  })

  test('pages are in the order of arrival', async () => {
    await f.db.register([{ key: 'paged', homeRegion: 'region-a', epoch: 2 }])
    const ids = Array.from({ length: 7 }, () => envelope('paged', 1))
    for (const headers of ids) await keep(headers)
    const seen: string[] = []
    for (let after = '0'; ; ) {
      const page = await f.db.quarantined({ key: 'paged', limit: 3, after })
      if (page.length === 0) break
      seen.push(...page.map(e => e.eventId))
      after = page.at(-1)?.position ?? after
    }
    expect(seen).toEqual(ids.map(h => h['event_id']))
  })

  test('an id that is in the inbox for a late event proves nothing, and is not counted as applied', async () => {
    await f.db.register([{ key: 'proof', homeRegion: 'region-a', epoch: 2 }])
    const [applied, barrier] = [randomUUID(), envelope('proof', 1, { event_type: 'homeregion.barrier' })]
    await keep(barrier)
    await consumer.query(
      `insert into inbox (event_id, tenant_id, owner_epoch, event_type) values ($1, 'proof', 1, 'x'), ($2, 'proof', 1, 'x')`,
      [applied, barrier['event_id']],
    )
    expect([await f.db.inboxHas(applied), await f.db.inboxHas(barrier['event_id'] ?? '')]).toEqual([true, false])
    expect(await f.db.delayedEvents('proof', 2)).toMatchObject({ count: 1, quarantined: 1 })
  })
})
