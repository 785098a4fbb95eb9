import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'

const STRESS_MS = 10_000
const KEYS = ['hot-0', 'hot-1']
const ISOLATIONS = ['read committed', 'repeatable read', 'serializable'] as const

// The same data under a guard that only reads ownership: if the test cannot show late rows there, it is blind.
const CONTROL = `
  create table probed (tenant_id text not null, xid xid8 not null default pg_current_xact_id());
  create table control (tenant_id text not null, xid xid8 not null default pg_current_xact_id());
  create table control_state (tenant_id text primary key, open boolean not null);
  create function control_guard() returns trigger language plpgsql security definer as $$ begin
    if not (select open from public.control_state where tenant_id = new.tenant_id) then raise exception 'closed'; end if;
    return new;
  end $$;
  create trigger guard before insert on control for each row execute function control_guard();
  insert into control_state values ('hot-0', true), ('hot-1', true);
  grant insert on probed, control to app_writer;`

let f: RegionFixture
beforeAll(async () => {
  f = await startRegion({
    prepare: CONTROL,
    guarded: [{ schema: 'public', table: 'probed', key: 'tenant_id', guard: 'row', versions: null }],
  })
})
afterAll(async () => await f?.stop())

/** Writers of every isolation level, with savepoints, several writes and prepared transactions, until `end`. Refusals are expected. */
async function write(client: pg.Client, table: string, isolation: string, end: number, id: number): Promise<void> {
  for (let n = 0; performance.now() < end; n += 1) {
    const key = KEYS[n % KEYS.length]
    const insert = `insert into ${table} (tenant_id) values ('${key}')`
    try {
      await client.query(`begin isolation level ${isolation}; select 1`)
      if (n % 3 === 0) await client.query(`savepoint s; ${insert}; rollback to s`)
      await client.query(insert)
      if (n % 4 === 0) await client.query(insert)
      if (n % 7 === 0) {
        await client.query(`prepare transaction '${table}-${id}-${n}'`)
        await client.query(`commit prepared '${table}-${id}-${n}'`)
      } else await client.query('commit')
    } catch {
      await client.query('rollback')
    }
  }
}

/** Rows of the key by transactions that a snapshot taken after the fence did not see as finished. */
async function late(admin: pg.Client, table: string, key: string, snapshot: string): Promise<number> {
  const { rows } = await admin.query<{ n: string }>(
    `select count(*) as n from ${table} where tenant_id = $1 and not pg_visible_in_snapshot(xid, $2::pg_snapshot)`,
    [key, snapshot],
  )
  return Number(rows[0]?.n)
}

test('under random load no row of a key is written after its fence, while a guard that only reads lets many through', async () => {
  const admin = await f.login('postgres')
  await f.db.register(KEYS.map(key => ({ key, homeRegion: 'region-a', epoch: 1 })))
  const end = performance.now() + STRESS_MS
  const writers: Promise<void>[] = []
  for (const [id, isolation] of [...ISOLATIONS, ...ISOLATIONS].entries()) {
    writers.push(write(await f.login('app_writer'), 'probed', isolation, end, id))
    writers.push(write(await f.login('app_writer'), 'control', isolation, end, id))
  }
  const found = { fences: 0, busy: 0, late: 0, control: 0 }
  for (let epoch = 1; performance.now() < end; epoch += 1) {
    for (const key of KEYS) {
      await f.db.drain(key, epoch, epoch)
      const fenced = await f.db.fence(key, epoch, epoch, randomUUID()).then(
        () => true,
        () => false,
      )
      if (!fenced) {
        found.busy += 1
        while ((await f.db.inFlight(key, 500)).length > 0);
        await f.db.fence(key, epoch, epoch, randomUUID())
      }
      await admin.query('update control_state set open = false where tenant_id = $1', [key])
      const snapshot = String((await admin.query<{ s: string }>('select pg_current_snapshot()::text as s')).rows[0]?.s)
      await new Promise(resolve => setTimeout(resolve, 20))
      found.fences += 1
      found.late += await late(admin, 'probed', key, snapshot)
      found.control += await late(admin, 'control', key, snapshot)
      await admin.query('update control_state set open = true where tenant_id = $1', [key])
      await f.db.open(key, epoch + 1, epoch)
    }
  }
  await Promise.all(writers)
  const { rows } = await admin.query<{ n: string }>('select count(*) as n from probed')
  expect(Number(rows[0]?.n)).toBeGreaterThan(100)
  expect(found.fences).toBeGreaterThan(10)
  expect(found.late).toBe(0)
  expect(found.control).toBeGreaterThan(0)
  process.stdout.write(`${JSON.stringify({ ...found, rows: Number(rows[0]?.n) })}\n`)
})
