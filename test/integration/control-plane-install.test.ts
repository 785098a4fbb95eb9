import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { installControlPlane, renderControlPlane } from '../../src/adapters/control-plane/install.ts'
import { CONTROL_PLANE_VERSION } from '../../src/adapters/control-plane/schema.ts'
import { type Fixture, moveKey, only, startFixture } from './control-plane-fixture.ts'

describe.each([15, 18] as const)('on PostgreSQL %i', version => {
  let fixture: Fixture
  beforeAll(async () => {
    fixture = await startFixture({ version, install: false })
  })
  afterAll(async () => {
    await fixture.stop()
  })
  const install = async (dryRun = false, changes = {}) =>
    await installControlPlane({ config: { ...fixture.config, ...changes }, secrets: fixture.secrets, dryRun })

  test('before it is installed, everything says so and nothing is made', async () => {
    const store = fixture.store()
    await expect(store.ownership(['tenant-1'])).rejects.toMatchObject({
      code: expect.stringMatching(/not-initialised|privilege-missing/) as string,
    })
    expect(await store.facts()).toMatchObject({ version: null, schemaProblems: ['the control plane is not installed'] })
    const shown = await install(true)
    expect(shown).toMatchObject({ fromVersion: 0, applied: false })
    expect(shown.statements.every(s => s.sql !== '' && s.why !== '' && !s.sql.includes('{{'))).toBe(true)
    expect((await store.facts()).version).toBeNull()
  })

  test('two at once install it once; installing again changes nothing', async () => {
    const both = await Promise.all([install(), install()])
    expect(both.every(i => i.applied)).toBe(true)
    const store = fixture.store()
    await only(store.register([{ key: 'tenant-1', homeRegion: 'region-a' }]))
    const again = await install()
    expect(again.fromVersion).toBe(again.version)
    expect(again.statements.some(s => s.sql.startsWith('create'))).toBe(false)
    expect(await store.facts()).toMatchObject({
      version: CONTROL_PLANE_VERSION,
      schemaProblems: [],
      privilegeProblems: [],
      inRecovery: false,
      readOnly: false,
    })
    expect(await store.ownership(['tenant-1'])).toHaveLength(1)
  })

  test('a policy that changed is retired and followed by the new one', async () => {
    const admin = await fixture.raw('admin')
    const policies = async () =>
      (
        await admin.query<Record<string, boolean>>(
          'select needs_barrier, needs_idempotency, in_force from homeregion_control.interlock_policy order by id',
        )
      ).rows
    await install(false, { idempotency: null })
    await install(false, { topology: 'shared' })
    expect(await policies()).toEqual([
      { needs_barrier: true, needs_idempotency: true, in_force: false },
      { needs_barrier: true, needs_idempotency: false, in_force: false },
      { needs_barrier: false, needs_idempotency: false, in_force: true },
    ])
    await install()
  })

  test('the control plane of another service and a newer version are refused', async () => {
    await expect(install(false, { service: 'shipping' })).rejects.toMatchObject({ code: 'wrong-database' })
    const admin = await fixture.raw('admin')
    await admin.query('insert into homeregion_control.schema_version (version) values (99)')
    const store = fixture.store()
    await expect(install()).rejects.toMatchObject({ code: 'newer-schema', fields: { version: 99 } })
    await expect(store.register([{ key: 'tenant-2', homeRegion: 'region-a' }])).rejects.toMatchObject({ code: 'newer-schema' })
    expect(await store.facts()).toMatchObject({
      version: 99,
      schemaProblems: [`version 99 is installed, this tool knows ${CONTROL_PLANE_VERSION}`],
    })
    await admin.query('delete from homeregion_control.schema_version where version = 99')
  })

  test.each([
    [
      'a loosened transition table',
      `alter table homeregion_control.ownership_log drop constraint ownership_log_transition;
       alter table homeregion_control.ownership_log add constraint ownership_log_transition check (to_epoch > 0)`,
      'constraint ownership_log_transition is not the transition table of this tool',
    ],
    [
      'an interlock that is gone',
      'alter table homeregion_control.ownership_log drop constraint ownership_log_interlock',
      'constraint ownership_log_interlock is missing',
    ],
    [
      'a proof that is not asked for any more',
      'alter table homeregion_control.activation drop constraint activation_barrier',
      'constraint activation_barrier is missing, disabled or not validated',
    ],
    [
      'a second run allowed',
      'drop index homeregion_control.run_key_one_open',
      'index run_key_one_open is missing, disabled or not validated',
    ],
    [
      'an approval that nobody counts',
      'alter table homeregion_control.forced_failover disable trigger forced_failover_counted',
      'trigger forced_failover_counted is missing, disabled or not validated',
    ],
    [
      'a forced failover that owns no loss',
      'alter table homeregion_control.forced_failover drop constraint forced_failover_loss',
      'constraint forced_failover_loss is missing, disabled or not validated',
    ],
    [
      'a pointer that may go back',
      'alter table homeregion_control.ownership disable trigger ownership_forward',
      'trigger ownership_forward is missing, disabled or not validated',
    ],
  ])('the doctor sees %s', async (_, sql, problem) => {
    const admin = await fixture.raw('admin')
    const store = fixture.store()
    await admin.query('begin')
    await admin.query(sql)
    await admin.query('commit')
    expect((await store.facts()).schemaProblems).toContain(problem)
    await admin.query('drop schema homeregion_control cascade')
    await install()
    expect((await store.facts()).schemaProblems).toEqual([])
  })

  test('the doctor sees a privilege that is missing and one that is too much; init repairs both', async () => {
    const admin = await fixture.raw('admin')
    const store = fixture.store()
    await admin.query('revoke insert on homeregion_control.evidence from homeregion_operator')
    await admin.query('grant delete on homeregion_control.ownership_log to homeregion_operator')
    expect((await store.facts()).privilegeProblems).toEqual([
      'homeregion_operator lacks INSERT on evidence',
      'homeregion_operator could rewrite the record: it has DELETE on ownership_log',
    ])
    await install()
    expect((await store.facts()).privilegeProblems).toEqual([])
  })

  test('the doctor compares the constraints where PUBLIC may make no temporary tables', async () => {
    const admin = await fixture.raw('admin')
    await install()
    await admin.query('revoke temporary on database control from public; revoke temporary on database control from homeregion_operator')
    const store = fixture.store()
    expect((await store.facts()).schemaProblems).toEqual([expect.stringContaining('could not be compared')])
    await install()
    expect((await store.facts()).schemaProblems).toEqual([])
    await admin.query('grant temporary on database control to public')
  })

  test('one login for everything works, and the doctor says what it costs', async () => {
    const { controlPlane } = fixture.config
    const admin = controlPlane.admin ?? controlPlane.operator
    await install(false, { controlPlane: { operator: admin, admin: null } })
    const store = fixture.store({ controlPlane: { operator: admin, admin: null } })
    const key = `tenant-one-login-${version}`
    await moveKey(store, await only(store.register([{ key, homeRegion: 'region-a' }])), 'region-b')
    expect((await store.facts()).privilegeProblems).toEqual([expect.stringContaining('postgres could rewrite the record')])
    await install()
  })

  test('an operator role that does not exist is named', async () => {
    const { controlPlane } = fixture.config
    const url = controlPlane.operator.url.replace('homeregion_operator', 'nobody%20here')
    const missing = install(false, { controlPlane: { ...controlPlane, operator: { ...controlPlane.operator, url } } })
    await expect(missing).rejects.toMatchObject({ code: 'privilege-missing', fields: { role: 'nobody here' } })
  })

  test('the rendered statements are the same each time', () => {
    expect(renderControlPlane(fixture.config)).toEqual(renderControlPlane(fixture.config))
  })
})
