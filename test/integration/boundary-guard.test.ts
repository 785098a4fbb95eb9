import { existsSync } from 'node:fs'
import { Readable } from 'node:stream'
import type pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'

const VERSIONS = existsSync('/usr/lib/postgresql/15/bin/postgres') ? ([18, 15] as const) : ([18] as const)

const TABLES = `
  create schema "Odd Schema";
  create table "Odd Schema"."Größe""x" ("Tenant ""Key" bigint not null, n int);
  create table by_uuid (tenant uuid not null, n int);
  create table ledger (tenant_id text not null, day date not null, n int) partition by range (day);
  create table ledger_1 partition of ledger for values from ('2026-01-01') to ('2027-01-01');
  create table parent (tenant_id text not null, n int);
  create table child () inherits (parent);
  create table account_note (tenant_id text not null, account_id text, foreign key (tenant_id, account_id) references account on delete cascade on update cascade);
  create table bulk (tenant_id text not null, n int not null);
  grant usage on schema "Odd Schema" to app_writer;
  grant all on all tables in schema public, "Odd Schema" to app_writer;
  revoke trigger on all tables in schema public, "Odd Schema" from app_writer;
  grant create on schema public to app_writer;
  grant temporary on database app to app_writer;`

const row = (schema: string, table: string, key = 'tenant_id', guard: 'row' | 'statement' = 'row') => ({
  schema,
  table,
  key,
  guard,
  versions: null,
})
const GUARDED = [
  row('public', 'account'),
  row('public', 'invoice'),
  row('Odd Schema', 'Größe"x', 'Tenant "Key'),
  row('public', 'by_uuid', 'tenant'),
  row('public', 'ledger'),
  row('public', 'parent'),
  row('public', 'account_note'),
  row('public', 'bulk', 'tenant_id', 'statement'),
]
const UUID = '6f2d1c1e-0d5b-4d7c-9a44-0c6a3f0a8f11'

describe.each(VERSIONS)('on PostgreSQL %i', version => {
  let f: RegionFixture
  let w: pg.Client
  let admin: pg.Client
  beforeAll(async () => {
    f = await startRegion({ version, guarded: GUARDED, prepare: TABLES })
    w = await f.login('app_writer')
    admin = await f.login('postgres')
    await f.db.register(['open', 'closed', '7', '8', UUID].map(key => ({ key, homeRegion: 'region-a', epoch: 1 })))
    await f.db.register([{ key: 'elsewhere', homeRegion: 'region-b', epoch: 1 }])
    await w.query(`insert into account values ('open', 'a', 1, 'x'), ('closed', 'a', 1, 'x')`)
    await w.query(`insert into account_note values ('closed', 'a')`)
    await w.query(`insert into ledger values ('closed', '2026-02-02', 1), ('open', '2026-02-02', 1)`)
    await w.query(`insert into bulk values ('closed', 1), ('open', 1)`)
    for (const key of ['closed', '8']) {
      await f.db.drain(key, 1, 1)
      await f.db.fence(key, 1, 1, crypto.randomUUID())
    }
    await w.query('create temporary table feed (tenant_id text, account_id text); insert into feed values ($$closed$$, $$m$$)')
  })
  afterAll(async () => await f?.stop())
  beforeEach(async () => void (await w.query('begin')))
  afterEach(async () => void (await w.query('rollback')))

  test.each([
    ['INSERT', `insert into account values ('closed', 'z', 1, 'x')`],
    ['a statement over several keys', `insert into account values ('open', 'z', 1, 'x'), ('closed', 'z', 1, 'x')`],
    ['UPDATE', `update account set version = 2 where tenant_id = 'closed'`],
    ['DELETE', `delete from account where tenant_id = 'closed'`],
    [
      'an UPDATE that moves a row away from the key',
      `update account set tenant_id = 'open', account_id = 'moved' where tenant_id = 'closed'`,
    ],
    ['an UPDATE that moves a row to the key', `update account set tenant_id = 'closed', account_id = 'moved' where tenant_id = 'open'`],
    [
      'ON CONFLICT DO UPDATE',
      `insert into account values ('closed', 'a', 1, 'x') on conflict (tenant_id, account_id) do update set version = 2`,
    ],
    ['ON CONFLICT DO NOTHING', `insert into account values ('closed', 'a', 1, 'x') on conflict do nothing`],
    [
      'MERGE that inserts',
      `merge into account a using feed f on a.tenant_id = f.tenant_id and a.account_id = f.account_id when not matched then insert values (f.tenant_id, f.account_id, 1, 'x')`,
    ],
    ['MERGE that updates', `merge into account a using feed f on a.tenant_id = f.tenant_id when matched then update set version = 2`],
    ['MERGE that deletes', `merge into account a using feed f on a.tenant_id = f.tenant_id when matched then delete`],
    ['a writable CTE', `with d as (delete from account where tenant_id = 'closed' returning 1) select count(*) from d`],
    ['a partitioned table', `insert into ledger values ('closed', '2026-03-03', 1)`],
    ['a partition by itself', `insert into ledger_1 values ('closed', '2026-03-03', 1)`],
    ['a child table', `insert into child values ('closed', 1)`],
    ['a parent that reaches its child', `insert into parent values ('closed', 1)`],
    ['a quoted bigint column', `insert into "Odd Schema"."Größe""x" values (8, 1)`],
    [
      'a bulk-loaded table, INSERT',
      `insert into bulk select case when g = 500 then 'closed' else 'open' end, g from generate_series(1, 1000) g`,
    ],
    ['a bulk-loaded table, UPDATE', `update bulk set n = 2`],
    ['a bulk-loaded table, DELETE', `delete from bulk where tenant_id = 'closed'`],
    ['the outbox, INSERT', `insert into outbox values (default, gen_random_uuid(), 'closed', 'a', 'a', 'a', 'a', 'a', 1, 1, now())`],
    ['the outbox, an event changed', `update outbox set payload = '{"forged": true}', published_at = now() where tenant_id = 'closed'`],
    ['idempotency', `insert into idempotency values ('closed', 'k', '{}')`],
  ])('%s is refused for a fenced key', async (_name, sql) => {
    await expect(w.query(sql)).rejects.toMatchObject({ code: 'HR001', constraint: 'homeregion_guard' })
  })

  test('a foreign key that cascades is refused', async () => {
    await admin.query(`begin; alter table account disable trigger zzz_homeregion_delete`)
    await expect(admin.query(`delete from account where tenant_id = 'closed'`)).rejects.toMatchObject({ code: 'HR001' })
    await admin.query('rollback')
  })

  test('COPY is refused', async () => {
    await expect(
      copyIn(w, 'copy account (tenant_id, account_id, version, billing_address) from stdin', 'closed\tc\t1\tx\n'),
    ).rejects.toMatchObject({ code: 'HR001' })
  })

  test.each(['account', 'invoice', 'ledger', 'ledger_1', 'bulk', 'outbox', 'account cascade', 'parent'])(
    'TRUNCATE %s is refused, to a superuser too',
    async table => {
      await expect(admin.query(`truncate ${table}`)).rejects.toMatchObject({ code: table === 'account' ? '0A000' : 'HR005' })
    },
  )

  test('partitions made or attached later are guarded', async () => {
    await admin.query(`create table ledger_2 partition of ledger for values from ('2027-01-01') to ('2028-01-01')`)
    await admin.query(`create table ledger_3 (like ledger)`)
    await admin.query(`alter table ledger attach partition ledger_3 for values from ('2028-01-01') to ('2029-01-01')`)
    await admin.query('grant insert on ledger_3 to app_writer')
    expect((await f.db.facts()).guardProblems).toEqual([])
    await expect(admin.query('truncate ledger_2')).rejects.toMatchObject({ code: 'HR005' })
    await expect(admin.query('truncate ledger_3')).rejects.toMatchObject({ code: 'HR005' })
    await expect(w.query(`insert into ledger_3 values ('closed', '2028-03-03', 1)`)).rejects.toMatchObject({ code: 'HR001' })
  })

  test('keys of text, bigint and uuid that are open here are admitted', async () => {
    await w.query(`insert into "Odd Schema"."Größe""x" values (7, 1)`)
    await w.query('insert into by_uuid values ($1, 1)', [UUID.toUpperCase()])
    await w.query(`update account set version = 2 where tenant_id = 'open'`)
    await w.query(`update bulk set n = 2 where tenant_id = 'open'`)
    await w.query(`delete from ledger where tenant_id = 'open'`)
  })

  test('unknown and missing keys are refused', async () => {
    await w.query('savepoint a')
    await expect(w.query(`insert into account values ('nobody', 'z', 1, 'x')`)).rejects.toMatchObject({ code: 'HR003' })
    await w.query('rollback to a')
    await expect(w.query(`insert into parent values (null, 1)`)).rejects.toMatchObject({ code: 'HR003' })
  })

  test('the relay goes on marking and purging published events after the fence', async () => {
    const relay = await f.login('app_relay')
    await expect(w.query(`delete from outbox where tenant_id = 'closed' and published_at is null`)).rejects.toMatchObject({ code: 'HR001' })
    await expect(admin.query(`delete from outbox where tenant_id = 'closed'`)).rejects.toMatchObject({ code: 'HR001' })
    await relay.query(`update outbox set published_at = now() where tenant_id = 'closed'`)
    await admin.query(`begin; delete from outbox where tenant_id = 'closed'; rollback`)
    await relay.query(`update outbox set published_at = null where tenant_id = 'closed'`)
  })

  test('an evil search_path, operator or temporary table changes nothing', async () => {
    await w.query(`create function pg_temp.yes(text, text) returns bool language sql as 'select true'`)
    await w.query(`create operator public.= (leftarg = text, rightarg = text, function = pg_temp.yes)`)
    await w.query(
      `create temporary table writable (key text, epoch bigint, require_epoch bool); insert into writable values ('closed', 1, false)`,
    )
    await w.query(`set local search_path = pg_temp, public, pg_catalog`)
    await expect(w.query(`update public.account set version = 2 where tenant_id operator(pg_catalog.=) 'closed'`)).rejects.toMatchObject({
      code: 'HR001',
    })
  })

  test('a wrong epoch is refused, the current one admitted', async () => {
    await w.query(`set local homeregion.epoch = '1'`)
    await w.query(`update account set version = 2 where tenant_id = 'open'`)
    await w.query(`set local homeregion.epoch = '1x'`)
    await expect(w.query(`update account set version = 3 where tenant_id = 'open'`)).rejects.toMatchObject({ code: 'HR002' })
  })

  test('replication may write copies of keys whose home is elsewhere, and nothing else', async () => {
    const inbox = await f.login('app_inbox')
    await inbox.query(`begin; insert into account values ('elsewhere', 'z', 1, 'x'); rollback`)
    for (const isolation of ['read committed', 'repeatable read']) {
      await inbox.query(`begin isolation level ${isolation}; insert into account values ('elsewhere', 'z', 1, 'x')`)
      await expect(inbox.query(`insert into account values ('open', 'z', 1, 'x')`)).rejects.toMatchObject({ code: 'HR001' })
      await inbox.query('rollback')
    }
    await expect(inbox.query(`insert into account values ('closed', 'z', 1, 'x')`)).rejects.toMatchObject({ code: 'HR001' })
    await expect(w.query(`insert into account values ('elsewhere', 'z', 1, 'x')`)).rejects.toMatchObject({ code: 'HR001' })
    await admin.query(
      `begin; set local session_replication_role = replica; insert into account values ('elsewhere', 'z', 1, 'x'); insert into bulk values ('elsewhere', 1)`,
    )
    await expect(admin.query(`insert into bulk values ('open', 1)`)).rejects.toMatchObject({ code: 'HR001' })
    await admin.query('rollback')
    expect((await f.db.rejections()).apply).toBeGreaterThanOrEqual(4)
  })

  test('ownership cannot be changed by hand', async () => {
    await expect(w.query(`update homeregion.ownership set state = 'ACTIVE'`)).rejects.toMatchObject({ code: '42501' })
    await expect(admin.query(`update homeregion.ownership set home_region = 'region-b' where key = 'open'`)).rejects.toMatchObject({
      code: 'HR006',
    })
    await expect(admin.query(`update homeregion.ownership set token = 0 where key = 'closed'`)).rejects.toMatchObject({ code: 'HR006' })
    await expect(admin.query(`truncate homeregion.ownership`)).rejects.toMatchObject({ code: 'HR005' })
  })

  test('probes decide on every table, also where a row with only its key cannot be stored', async () => {
    for (const isolation of ['read committed', 'repeatable read'] as const) {
      const closed = await f.db.probeWrites('closed', null, isolation)
      expect(closed.filter(p => !p.table.includes('Größe') && !p.table.includes('uuid')).map(p => [p.table, p.sqlstate])).toEqual(
        ['account', 'invoice', 'ledger', 'parent', 'account_note', 'bulk', 'outbox', 'idempotency'].map(t => [`public.${t}`, 'HR001']),
      )
      const open = await f.db.probeWrites('open', 1, isolation)
      expect(open.filter(p => p.outcome !== 'admitted').map(p => p.table)).toEqual(['Odd Schema.Größe"x', 'public.by_uuid'])
    }
  })
})

/** COPY … FROM STDIN over pg's own protocol messages. */
async function copyIn(client: pg.Client, sql: string, data: string): Promise<void> {
  const submittable = {
    submit: (connection: { query(text: string): void }) => connection.query(sql),
    handleCopyInResponse: (connection: { sendCopyFromChunk(chunk: Buffer): void; endCopyFrom(): void }) => {
      Readable.from([Buffer.from(data)])
        .on('data', (chunk: Buffer) => connection.sendCopyFromChunk(chunk))
        .on('end', () => connection.endCopyFrom())
    },
  }
  await new Promise<void>((done, failed) => {
    client.query({
      ...submittable,
      handleError: failed,
      handleReadyForQuery: () => done(),
      handleCommandComplete: () => undefined,
    } as never)
  })
}
