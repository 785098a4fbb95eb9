import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { installBoundary } from '../../src/adapters/postgres-region/install.ts'
import type { Config } from '../../src/domain/config.ts'
import { adminSecrets, type RegionFixture, secrets, startRegion } from './boundary-fixture.ts'

const INSERT = `insert into account (tenant_id, account_id, version, billing_address) values ($1, $2, 1, 'x')`

describe('installing the boundary', () => {
  let f: RegionFixture
  beforeAll(async () => {
    f = await startRegion({ install: false })
  })
  afterAll(async () => await f?.stop())

  const install = async (change: Partial<Config> = {}, dryRun = false) => {
    const config = { ...f.config, ...change }
    return await installBoundary({ config, region: f.region, secrets: adminSecrets(f), dryRun })
  }

  test('a dry run shows every statement and changes nothing', async () => {
    await expect(f.db.read('t')).rejects.toMatchObject({ code: 'not-initialised' })
    const shown = await install({}, true)
    expect(shown.applied).toBe(false)
    expect(shown.shown.length).toBeGreaterThan(30)
    expect(await f.db.facts()).toMatchObject({ region: null, boundaryVersion: null })
  })

  test.each([
    [
      'a table that is not there',
      { guarded: [{ schema: 'public', table: 'nothing', key: 'tenant_id', guard: 'row', versions: null }] },
      'nothing',
    ],
    [
      'a column that is not there',
      { guarded: [{ schema: 'public', table: 'account', key: 'tenant', guard: 'row', versions: null }] },
      'has no column tenant',
    ],
    [
      'statement triggers on a partitioned table',
      { guarded: [{ schema: 'public', table: 'invoice', key: 'tenant_id', guard: 'statement', versions: null }] },
      'partitioned',
    ],
    ['the shared topology', { topology: 'shared' }, 'shared'],
  ] as const)('%s is refused and nothing is installed', async (_name, change, text) => {
    await expect(install(change)).rejects.toMatchObject({ code: 'config-invalid', text: { fact: expect.stringContaining(text) as string } })
    expect(await f.db.facts()).toMatchObject({ region: null })
  })

  test('a login without the right is told so', async () => {
    const region = { ...f.region, database: { ...f.region.database, admin: null } }
    await expect(installBoundary({ config: f.config, region, secrets, dryRun: false })).rejects.toMatchObject({ code: 'privilege-missing' })
  })

  test('an administrator who is no superuser installs it', async () => {
    const admin = await f.login('postgres')
    await admin.query(`create role dba login password 'throwaway-of-one-test' createrole; grant create on database app to dba; grant app_owner to dba;
      alter database app owner to dba; create role homeregion_owner nologin; grant homeregion_owner to dba with admin option`)
    const database = {
      ...f.region.database,
      admin: { url: f.region.database.operator.url.replace('homeregion_operator', 'dba'), password: { env: 'X' } },
    }
    const done = await installBoundary({ config: f.config, region: { ...f.region, database }, secrets, dryRun: false })
    expect(done.applied).toBe(true)
    expect(await f.db.facts()).toMatchObject({ region: 'region-a', guardProblems: [], missingPrivileges: [] })
    await f.db.register([{ key: 't', homeRegion: 'region-a', epoch: 1 }])
    await f.db.drain('t', 1, 1)
    expect(await f.db.fence('t', 1, 1, randomUUID())).toMatchObject({ state: 'FENCED' })
  })

  test('the database of another region and a newer boundary are refused', async () => {
    const other = { ...f.region, name: 'region-b' }
    await expect(installBoundary({ config: f.config, region: other, secrets: adminSecrets(f), dryRun: false })).rejects.toMatchObject({
      code: 'wrong-database',
    })
    const admin = await f.login('postgres')
    await admin.query('update homeregion.installed set version = 99')
    await expect(install()).rejects.toMatchObject({ code: 'newer-schema' })
    await admin.query('update homeregion.installed set version = 1')
  })

  test('a table that is configured no longer loses its guard, and a guard that was taken off comes back', async () => {
    const admin = await f.login('postgres')
    await admin.query('drop trigger zzz_homeregion_delete on account')
    expect((await install()).applied).toBe(true)
    expect((await f.db.facts()).guardProblems).toEqual([])
    await install({ guarded: f.config.guarded.slice(1) })
    const { rows } = await admin.query<{ n: string }>(
      `select count(*) as n from pg_trigger where tgrelid = 'account'::regclass and tgname like 'zzz%'`,
    )
    expect(Number(rows[0]?.n)).toBe(0)
  })
})

describe('a default home', () => {
  let f: RegionFixture
  beforeAll(async () => {
    f = await startRegion({ defaultHome: 'region-a' })
  })
  afterAll(async () => await f?.stop())

  test('takes the first write of an unknown key at every isolation level, and registers the key', async () => {
    const w = await f.login('app_writer')
    for (const isolation of ['read committed', 'repeatable read', 'serializable']) {
      await w.query(`begin isolation level ${isolation}`)
      await w.query(INSERT, [isolation, 'a'])
      await w.query('commit')
      expect(await f.db.read(isolation)).toMatchObject({ homeRegion: 'region-a', epoch: 1, writable: true })
    }
  })

  test('first writers of one key at the same time both commit', async () => {
    const [a, b] = [await f.login('app_writer'), await f.login('app_writer')]
    await a.query('begin')
    await a.query(INSERT, ['twice', 'a'])
    const second = b.query(INSERT, ['twice', 'b'])
    await a.query('commit')
    expect(await second).toMatchObject({ rowCount: 1 })
  })

  test('a snapshot in which the key is unknown does not get past its fence', async () => {
    const w = await f.login('app_writer')
    await w.query('begin isolation level repeatable read; select 1 from account')
    await f.db.register([{ key: 'moved', homeRegion: 'region-a', epoch: 1 }])
    await f.db.drain('moved', 1, 1)
    await f.db.fence('moved', 1, 1, randomUUID())
    await expect(w.query(INSERT, ['moved', 'a'])).rejects.toMatchObject({ code: '40001' })
    await w.query('rollback')
    await expect(w.query(INSERT, ['moved', 'a'])).rejects.toMatchObject({ code: 'HR001' })
  })
})
