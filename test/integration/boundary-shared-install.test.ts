import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { installControlPlane } from '../../src/adapters/control-plane/install.ts'
import { installBoundary } from '../../src/adapters/postgres-region/install.ts'
import { type SharedFixture, startShared } from './shared-fixture.ts'

let f: SharedFixture
beforeAll(async () => {
  f = await startShared()
})
afterAll(async () => await f?.stop())

const install = async (config = f.config, region = f.regionA) =>
  await installBoundary({ config, region, secrets: f.secrets, dryRun: false })

describe('installing the boundary of a shared database', () => {
  test('is refused before the control plane is there', async () => {
    await expect(install()).rejects.toMatchObject({
      code: 'config-invalid',
      text: { fact: expect.stringContaining('same database') as string },
    })
    await installControlPlane({ config: f.config, secrets: f.secrets, dryRun: false })
  })

  test('happens once for all regions, and takes over the keys that are registered already', async () => {
    await f.store.register([{ key: 'early', homeRegion: 'region-a' }])
    expect((await install()).applied).toBe(true)
    expect(await install(f.config, f.regionB)).toEqual({ shown: [], applied: false })
    const sound = { guardProblems: [], missingPrivileges: [], boundaryVersion: 4 }
    expect(await f.a.facts()).toMatchObject({ region: 'region-a', ...sound })
    expect(await f.b.facts()).toMatchObject({ region: 'region-b', ...sound })
    expect((await f.store.facts()).schemaProblems).toEqual([])
    expect((await f.a.auditWriters()).filter(x => !x.accepted && x.around.includes('boundary'))).toEqual([])
    expect(await f.a.read('early')).toMatchObject({ homeRegion: 'region-a', epoch: 1, state: 'ACTIVE', writable: true })
    expect(await f.b.read('early')).toMatchObject({ homeRegion: 'region-a', writable: false })
  })

  test('is refused over the boundary of a single region, and the other way round', async () => {
    const independent = { ...f.config, topology: 'independent' } as const
    await expect(install(independent)).rejects.toMatchObject({
      code: 'wrong-database',
      text: { fact: expect.stringContaining('shared') as string },
    })
  })
})

describe('an administrator who is no superuser', () => {
  let other: SharedFixture
  beforeAll(async () => {
    other = await startShared()
  })
  afterAll(async () => await other?.stop())

  test('installs both, and again after the tie was lost', async () => {
    const superuser = await other.login('postgres')
    await superuser.query(`create role dba login password '${other.password}' createrole; grant app_owner to dba; alter database app owner to dba;
      create role homeregion_owner nologin; grant homeregion_owner to dba with admin option`)
    const dba = { url: other.regionA.database.operator.url.replace('homeregion_operator', 'dba'), password: { env: 'X' } }
    const regions = other.config.regions.map(r => ({ ...r, database: { ...r.database, admin: dba } }))
    const config = { ...other.config, regions, controlPlane: { ...other.config.controlPlane, admin: dba } }
    const [region] = regions
    if (region === undefined) throw new Error('no region')
    const set = async () => await installBoundary({ config, region, secrets: other.secrets, dryRun: false })
    await installControlPlane({ config, secrets: other.secrets, dryRun: false })
    expect((await set()).applied).toBe(true)
    await superuser.query('drop trigger zzz_homeregion_authority on homeregion_control.ownership')
    expect((await set()).applied).toBe(true)
    expect((await set()).applied).toBe(false)
    await other.store.register([{ key: 'k', homeRegion: 'region-b' }])
    expect(await other.b.read('k')).toMatchObject({ writable: true })
  })
})
