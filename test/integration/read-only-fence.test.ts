import { spawn } from 'node:child_process'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Config, GuardedTable } from '../../src/domain/config.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'
import { keepsWishesApart } from './fence-wishes.ts'
import { accessLists, CAUSE, loginAs, MESSY, readOnly } from './read-only-fixture.ts'

const table = (schema: string, name: string): GuardedTable => ({ schema, table: name, key: 'tenant_id', guard: 'row', versions: null })
const GUARDED = [table('public', 'account'), table('public', 'invoice'), table('odd "schema', 'Order')]
const ACCOUNT = `insert into account (tenant_id, account_id, version, billing_address) values ('t', gen_random_uuid()::text, 1, 'x')`

describe.each([15, 18] as const)('a read-only fence on PostgreSQL %i', version => {
  let f: RegionFixture
  let admin: pg.Client
  let before: readonly string[]
  beforeAll(async () => {
    f = await startRegion({ version, prepare: MESSY, guarded: GUARDED, defaultHome: 'region-a' })
    admin = await f.login('postgres')
    before = await accessLists(admin)
  })
  afterAll(async () => await f?.stop())

  const code = async (work: Promise<unknown>) =>
    await work.then(
      () => 'done',
      (error: unknown) => (error as { code?: string }).code,
    )
  const verdicts = async (fence: { verify(): Promise<readonly { verdict: string; observed: string; required: string }[]> }) =>
    (await fence.verify()).filter(o => o.verdict !== 'pass').map(o => `${o.verdict} ${o.required}: ${o.observed}`)

  test('takes every grant away, proves it, and brings back exactly what there was', async () => {
    const { fence } = readOnly(f)
    const plan = await fence.plan('apply')
    expect(plan.map(s => s.text)).toContain('revoke insert on "public"."account" from public')
    expect(await accessLists(admin)).toEqual(before)
    expect((await fence.verify()).map(o => o.verdict)).toEqual(['fail'])
    await fence.apply(CAUSE)
    expect(await fence.status()).toMatchObject({ state: 'applied', cause: CAUSE })
    expect(await verdicts(fence)).toEqual([])
    for (const role of ['app_writer', 'app_member', 'app_junior']) expect(await code((await f.login(role)).query(ACCOUNT))).toBe('42501')
    expect(await code((await f.login('app_viewer')).query(`update account_view set billing_address = 'y'`))).toBe('42501')
    // The boundary, not a privilege, decides about copies; the relay goes on.
    const inbox = await f.login('app_inbox')
    expect(await code(inbox.query(`delete from account where tenant_id = 'nobody'`))).toBe('done')
    expect(await code((await f.login('app_relay')).query('update outbox set published_at = now() where false'))).toBe('done')
    expect(await code(admin.query(ACCOUNT))).toBe('done')
    // Twice is once.
    await fence.apply(CAUSE)
    expect(await liftStanding(fence, CAUSE)).toEqual([expect.stringMatching(/^(\d+) of \1 privileges stand as before the fence$/)])
    expect(await accessLists(admin)).toEqual(before)
    expect((await fence.status()).state).toBe('lifted')
    await liftStanding(fence, CAUSE)
    expect(await accessLists(admin)).toEqual(before)
    await fence.close()
  })

  test('keeps wishes apart', async () => {
    const { fence } = readOnly(f)
    await keepsWishesApart(fence)
    expect(await accessLists(admin)).toEqual(before)
    await fence.close()
  })

  test('ends sessions that could still commit what they wrote, and no others', async () => {
    const { fence } = readOnly(f)
    const [wrote, idle, member, copies] = [
      await f.login('app_writer'),
      await f.login('app_writer'),
      await f.login('app_member'),
      await f.login('app_inbox'),
    ]
    for (const c of [wrote, member]) {
      await c.query('begin')
      await c.query(ACCOUNT)
    }
    await idle.query('begin')
    await idle.query('select 1 from account')
    await copies.query('select 1')
    expect((await fence.plan('apply')).filter(s => s.text.startsWith('select pg_terminate_backend'))).toHaveLength(2)
    expect(await fence.apply(CAUSE)).toContain('2 sessions with an open write ended')
    expect(await code(wrote.query('commit'))).not.toBe('done')
    expect(await code(idle.query(ACCOUNT))).toBe('42501')
    expect(await code(copies.query('select 1'))).toBe('done')
    await liftStanding(fence, CAUSE)
    await fence.close()
  })

  test('names a prepared transaction, settles none, and finishes when it is settled', async () => {
    const { fence } = readOnly(f)
    const writer = await f.login('app_writer')
    await writer.query('begin')
    await writer.query(ACCOUNT)
    await writer.query(`prepare transaction 'left over'`)
    const quick = readOnly(f)
    await expect(quick.fence.apply(CAUSE)).rejects.toMatchObject({
      code: 'fence-failed',
      text: { fact: expect.stringContaining('"left over"') as string, state: expect.stringContaining('applying') as string },
    })
    expect((await fence.status()).state).toBe('applying')
    expect(await verdicts(fence)).toEqual([expect.stringContaining('begun and not finished'), expect.stringContaining('1 prepared')])
    await admin.query(`rollback prepared 'left over'`)
    await fence.apply(CAUSE)
    expect(await verdicts(fence)).toEqual([])
    await liftStanding(fence, CAUSE)
    await Promise.all([fence.close(), quick.fence.close()])
  })

  test('sees what is granted, attached or joined while it stands', async () => {
    const { fence } = readOnly(f)
    await fence.apply(CAUSE)
    await admin.query('grant update on account to app_writer')
    expect(await verdicts(fence)).toEqual([
      expect.stringContaining('UPDATE on "public"."account" to app_writer'),
      expect.stringContaining('app_writer'),
      expect.stringContaining('admitted'),
    ])
    expect((await fence.status()).holds.filter(l => l.startsWith('NOT HELD'))).toHaveLength(1)
    await fence.apply(CAUSE)
    expect(await verdicts(fence)).toEqual([])
    await admin.query(`alter default privileges for role app_owner grant insert on tables to app_writer; set role app_owner;
      create table "Late" (like invoice); alter table invoice detach partition invoice_1; alter table "Late" add primary key (tenant_id, invoice_id);
      alter table invoice attach partition "Late" for values with (modulus 2, remainder 1); reset role`)
    expect(await verdicts(fence)).toEqual([expect.stringContaining('"Late"'), expect.stringContaining('app_writer')])
    await admin.query(`set role app_owner; alter table invoice detach partition "Late"; drop table "Late";
      alter table invoice attach partition invoice_1 for values with (modulus 2, remainder 1); reset role;
      alter default privileges for role app_owner revoke insert on tables from app_writer`)
    expect(await verdicts(fence)).toEqual([])
    await admin.query('grant app_owner to app_junior')
    expect(await verdicts(fence)).toEqual([expect.stringContaining('app_junior through app_owner')])
    await admin.query('revoke app_owner from app_junior; grant pg_write_all_data to app_junior')
    expect(await verdicts(fence)).toEqual([expect.stringContaining('app_junior through pg_write_all_data')])
    await admin.query('revoke pg_write_all_data from app_junior')
    await liftStanding(fence, CAUSE)
    expect(await accessLists(admin)).toEqual(before)
    await fence.close()
  })

  test('is no proof while a foreign key or a rule writes a guarded table for whoever writes another', async () => {
    const { fence } = readOnly(f)
    await admin.query(`create table house (account_id text primary key); alter table account add column house text references house on delete cascade;
      grant delete on house to app_writer`)
    await fence.apply(CAUSE)
    expect(await verdicts(fence)).toEqual([expect.stringMatching(/house/)])
    await admin.query('alter table account drop column house; drop table house')
    expect(await verdicts(fence)).toEqual([])
    await liftStanding(fence, CAUSE)
    expect(await accessLists(admin)).toEqual(before)
    await fence.close()
  })

  test('says what cannot come back, and brings back the rest', async () => {
    const { fence } = readOnly(f)
    await admin.query(`create role doomed; grant insert on account to doomed; set role app_owner;
      create table invoice_extra (extra int) inherits (account); grant insert on invoice_extra to app_team; reset role`)
    await fence.apply(CAUSE)
    await admin.query(`drop table invoice_extra; drop role doomed; grant update on account to app_writer`)
    const lines = await liftStanding(fence, CAUSE)
    expect(lines.slice(1).sort()).toEqual([
      'had been given back by hand: UPDATE on "public"."account" to app_writer',
      expect.stringMatching(/^not brought back: INSERT on "public"."account" to doomed: role doomed is gone$/),
      expect.stringMatching(/^not brought back: INSERT on .*invoice_extra.* is gone$/),
    ])
    expect(await accessLists(admin)).toEqual(before)
    await fence.close()
  })

  test('finds a renamed column, and ends with an error that names what could not come back though it is missed', async () => {
    const { fence } = readOnly(f)
    await admin.query(`create role lender; create role borrower; grant update (billing_address) on account to borrower;
      grant insert on account to lender with grant option; grant usage on schema public to lender;
      set session authorization lender; grant insert on public.account to borrower; reset session authorization`)
    await fence.apply(CAUSE)
    await admin.query(`alter table account rename column billing_address to address;
      revoke all on schema public from lender; drop role lender`)
    try {
      const { asked } = await fence.status()
      await expect(fence.lift(CAUSE, asked)).rejects.toMatchObject({
        code: 'fence-failed',
        text: {
          fact: expect.stringMatching(
            /could not give back INSERT on "public"."account" to borrower by lender: role lender, who gave it, is gone$/,
          ) as string,
          state: expect.stringMatching(/^The fence is lifted, \d+ of \d+ privileges/) as string,
        },
      })
      expect((await fence.status()).state).toBe('lifted')
      const { rows } = await admin.query(`select has_column_privilege('borrower', 'account', 'address', 'UPDATE') as may`)
      expect(rows).toEqual([{ may: true }])
    } finally {
      await admin.query(`alter table account rename column address to billing_address;
        revoke all (billing_address) on account from borrower; drop role borrower`)
    }
    expect(await accessLists(admin)).toEqual(before)
    await fence.close()
  })

  test('gives back to whom it was taken from, whoever has the names now; to a name alone only where the number is gone', async () => {
    const { fence } = readOnly(f)
    await admin.query(`create role shop_a; create role shop_b; create role shop_c; grant insert on account to shop_a; grant delete on account to shop_b;
      grant update on account to shop_c; grant insert on invoice_1 to shop_c`)
    await fence.apply(CAUSE)
    await admin.query(`alter role shop_a rename to shop_x; alter role shop_b rename to shop_a; alter role shop_x rename to shop_b;
      drop role shop_c; create role shop_c; alter table invoice_1 rename to invoice_one; create table invoice_1 (n int)`)
    const lines = await liftStanding(fence, CAUSE)
    const of = async (role: string, of: string) =>
      (
        await admin.query<{ p: string[] }>(
          `select array(select a.privilege_type from pg_class c, aclexplode(c.relacl) a where c.oid = $2::regclass and a.grantee = $1::regrole order by 1) as p`,
          [role, of],
        )
      ).rows[0]?.p
    // What was shop_a's is shop_b's now, because that is who it is.
    expect([await of('shop_b', 'account'), await of('shop_a', 'account'), await of('shop_c', 'account')]).toEqual([
      ['INSERT'],
      ['DELETE'],
      ['UPDATE'],
    ])
    expect([await of('shop_c', 'invoice_one'), await of('shop_c', 'invoice_1')]).toEqual([['INSERT'], []])
    expect(lines).toEqual(
      expect.arrayContaining([
        'NOTE role shop_a is called shop_b now',
        'NOTE role shop_b is called shop_a now',
        'NOTE role shop_c was made anew, and is taken by its name',
        'NOTE "public"."invoice_1" is called "public"."invoice_one" now, and another has its old name',
      ]),
    )
    await admin.query(`drop table invoice_1; alter table invoice_one rename to invoice_1; revoke all on account, invoice_1 from shop_a, shop_b, shop_c;
      drop role shop_a, shop_b, shop_c`)
    expect(await accessLists(admin)).toEqual(before)
    await fence.close()
  })

  test('an owner and a superuser that write are no proof, and those who do not are named', async () => {
    await admin.query(`alter role app_owner login password 'throwaway-of-one-test'; grant connect on database app to app_owner`)
    const { fence } = readOnly(f, { writers: [loginAs(f, 'app_owner')] })
    await fence.apply(CAUSE)
    expect(await verdicts(fence)).toEqual([expect.stringContaining('app_owner'), expect.stringMatching(/^fail every INSERT.*admitted/)])
    await admin.query('revoke connect on database app from app_owner; alter role app_owner nologin password null')
    const usual = readOnly(f)
    expect(await usual.fence.verify()).toContainEqual(
      expect.objectContaining({
        verdict: 'pass',
        observed: expect.stringMatching(/app_owner \(owner, cannot log in\).*postgres \(superuser\)/) as string,
      }),
    )
    await admin.query('alter role app_writer nologin')
    const outside = readOnly(f)
    expect(await outside.fence.verify()).toContainEqual(
      expect.objectContaining({ verdict: 'pass', observed: expect.stringContaining('its own login is refused with 28000') as string }),
    )
    await admin.query('alter role app_writer login')
    await liftStanding(usual.fence, CAUSE)
    expect(await accessLists(admin)).toEqual(before)
    await Promise.all([fence.close(), usual.fence.close(), outside.fence.close()])
  })

  test('a fencer that could not bring everything back changes nothing and says so', async () => {
    await admin.query(`create role fencer login createrole password 'throwaway-of-one-test'; grant connect on database app to fencer;
      grant pg_signal_backend, app_owner to fencer; grant select, insert, update, delete on homeregion.fence, homeregion.fence_item to fencer`)
    const { fence } = readOnly(f, { fencer: loginAs(f, 'fencer') })
    const refused = { code: 'privilege-missing', text: { fact: expect.stringContaining('by Lead; drop') as string } }
    expect((await fence.plan('apply')).filter(s => s.why.startsWith('REFUSED'))).not.toEqual([])
    await expect(fence.apply(CAUSE)).rejects.toMatchObject(refused)
    expect((await accessLists(admin)).filter(l => !l.includes('fencer='))).toEqual(before)
    await admin.query('grant "Lead; drop", app_other to fencer')
    await fence.apply(CAUSE)
    expect(await verdicts(fence)).toEqual([])
    await liftStanding(fence, CAUSE)
    await admin.query(`revoke all on homeregion.fence, homeregion.fence_item from fencer; alter role fencer nologin;
      revoke app_owner, app_other, "Lead; drop" from fencer`)
    expect(await accessLists(admin)).toEqual(before)
    await fence.close()
  })

  test('killed at any point, apply finishes and lift brings back exactly what there was', async () => {
    const { fence, config, password } = readOnly(f)
    const counted = await verb('apply', config, password, 'count')
    const points = counted.passed
    expect(points.length).toBeGreaterThanOrEqual(6)
    const lifted = await verb('lift', config, password, 'count')
    for (let n = 1; n <= points.length; n += 1) {
      expect((await verb('apply', config, password, `kill@${n}`)).signal).toBe('SIGKILL')
      // Half of the time finished, half of the time taken back at once.
      if (n % 2 === 0) {
        await fence.apply(CAUSE)
        expect(await verdicts(fence)).toEqual([])
      }
      await liftStanding(fence, CAUSE)
      expect(await accessLists(admin)).toEqual(before)
    }
    for (let n = 1; n <= lifted.passed.length; n += 1) {
      await fence.apply(CAUSE)
      expect((await verb('lift', config, password, `kill@${n}`)).signal).toBe('SIGKILL')
      await liftStanding(fence, CAUSE)
      expect(await accessLists(admin)).toEqual(before)
    }
    await fence.close()
  }, 120_000)
})

/** The verb in a process of its own, and the fault points it passed. */
async function verb(name: 'apply' | 'lift', config: Config, password: string, fault: string) {
  const child = spawn(process.execPath, ['--import', 'tsx', 'test/integration/fence-process.ts', name], {
    env: { ...process.env, HOMEREGION_FAULT: fault },
    stdio: ['pipe', 'ignore', 'pipe'],
  })
  child.stdin.end(JSON.stringify({ config, password: password }))
  let said = ''
  child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()))
  const [exit, signal] = await new Promise<[number | null, NodeJS.Signals | null]>(done => child.once('close', (c, s) => done([c, s])))
  if (fault === 'count' && exit !== 0) throw new Error(said)
  return { signal, passed: said.split('\n').filter(l => l.startsWith('fault-point ')) }
}
