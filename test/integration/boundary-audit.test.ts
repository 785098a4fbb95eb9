import { afterAll, beforeAll, expect, test } from 'vitest'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'

let f: RegionFixture
beforeAll(async () => {
  f = await startRegion()
})
afterAll(async () => await f?.stop())

const open = async () => (await f.db.auditWriters()).filter(a => !a.accepted).map(a => `${a.kind} ${a.subject}`)
const sql = async (text: string) => {
  const admin = await f.login('postgres')
  await admin.query(text)
  await admin.end()
}

test('the reference service has no way around the fence, and the idle superuser is named', async () => {
  expect(await open()).toEqual([])
  expect(await f.db.auditWriters()).toMatchObject([{ kind: 'superuser', subject: 'postgres', accepted: true }])
})

test.each([
  ['a writer that is superuser', 'alter role app_writer superuser', 'alter role app_writer nosuperuser', ['superuser app_writer']],
  [
    'a writer that is a member of the owner',
    'grant app_owner to app_writer',
    'revoke app_owner from app_writer',
    ['table-owner app_writer'],
  ],
  ['an owner that can log in', 'alter role app_owner login', 'alter role app_owner nologin', ['table-owner app_owner']],
  [
    'a member of the boundary owner',
    'grant homeregion_owner to app_relay',
    'revoke homeregion_owner from app_relay',
    ['boundary-owner app_relay'],
  ],
  [
    'a disabled guard',
    'alter table account disable trigger zzz_homeregion_insert',
    'alter table account enable always trigger zzz_homeregion_insert',
    ['guard account'],
  ],
  [
    'a guard of one partition that is off',
    'alter table only invoice_1 enable trigger zzz_homeregion_update',
    'alter table only invoice_1 enable always trigger zzz_homeregion_update',
    ['guard invoice_1'],
  ],
  [
    'the right to make triggers',
    'grant trigger on account to app_writer',
    'revoke trigger on account from app_writer',
    ['trigger-privilege app_writer'],
  ],
  ['a table of the key without a guard', 'create table note (tenant_id text)', 'drop table note', ['unguarded-table note']],
  [
    'a function that runs any text as the owner',
    `create function run_any(t text) returns void language plpgsql security definer as $$ begin execute t; end $$; alter function run_any owner to app_owner`,
    'drop function run_any(text)',
    ['security-definer public'],
  ],
  [
    'a guard whose text was changed',
    `create or replace function homeregion.is_applying() returns boolean language sql stable as $$ select false $$`,
    '',
    ['guard function homeregion.is_applying was changed after its installation'],
  ],
])('the audit names %s', async (_name, breaks, repairs, expected) => {
  await sql(breaks)
  const found = await open()
  if (repairs !== '') await sql(repairs)
  for (const e of expected) expect(found).toContainEqual(e)
  if (repairs !== '') await expect.poll(open).toEqual([])
})
