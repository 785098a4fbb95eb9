import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Connection, createConnection } from '../../src/adapters/postgres/connection.ts'
import { renderBoundary } from '../../src/adapters/postgres-region/boundary-sql.ts'
import { auditWriters } from '../../src/adapters/postgres-region/writer-audit.ts'
import type { AuditFinding } from '../../src/domain/boundary.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { type RegionFixture, secrets, startRegion } from './boundary-fixture.ts'
import { CAUSE, readOnly } from './read-only-fixture.ts'
import { ATTEMPTS, GUARDED, LOGINS, messySchema, SUBSCRIBE } from './writer-audit-scene.ts'

type Success = { readonly login: string; readonly sql: string; readonly object: string | undefined }

describe.each([15, 18] as const)('the audit of writers on PostgreSQL %i', version => {
  let f: RegionFixture
  let admin: pg.Client
  let sessions: ReadonlyMap<string, pg.Client>
  beforeAll(async () => {
    f = await startRegion({ version, prepare: messySchema(version), guarded: GUARDED, defaultHome: 'region-a' })
    admin = await f.login('postgres')
    await admin.query(SUBSCRIBE)
    await admin.query(`insert into account (tenant_id, account_id, version, billing_address, customer) values ('t', 'a', 1, 'x', 'c')`)
    sessions = new Map(await Promise.all(LOGINS.map(async l => [l, await f.login(encodeURIComponent(l))] as const)))
  }, 60_000)
  afterAll(async () => await f?.stop())

  /** Whatever any of the logins really manages to do, each time rolled back. */
  const oracle = async (): Promise<readonly Success[]> => {
    const successes: Success[] = []
    for (const [login, client] of sessions)
      for (const { sql, object } of ATTEMPTS) {
        await client.query('begin')
        const done = await client.query(sql).then(
          () => true,
          () => false,
        )
        await client.query('rollback')
        if (done) successes.push({ login, sql, object })
      }
    return successes
  }
  const missed = (successes: readonly Success[], findings: readonly AuditFinding[]) =>
    successes.filter(s => !findings.some(x => x.subject === s.login || x.subject === s.object)).map(s => `${s.login}: ${s.sql}`)

  test('misses no login that really writes, and names none that cannot', async () => {
    const findings = await f.db.auditWriters()
    const successes = await oracle()
    expect(missed(successes, findings)).toEqual([])
    // Every scene was one: a path that nobody could take would prove nothing.
    const able = new Set(successes.map(s => s.login))
    const unable = LOGINS.filter(l => !able.has(l))
    expect(unable).toEqual(
      version === 15 ? ['truncates', 'admin only', 'no option', 'nobody'] : ['truncates', 'makes roles', 'no option', 'nobody'],
    )
    const named = new Set(findings.map(x => x.subject))
    expect(['nobody', 'no option', ...(version === 15 ? ['admin only'] : ['makes roles'])].filter(l => named.has(l))).toEqual([])
    const kinds = new Set(findings.map(x => x.kind))
    for (const kind of [
      ...['superuser', 'table-owner', 'other-writer', 'member', 'write-all-data', 'security-definer', 'trigger-privilege'],
      ...['replica-session', 'server-files', 'default-privileges', 'bypass-rls', 'cascade', 'rule', 'definer-trigger', 'subscription'],
      ...['foreign-server', 'event-trigger', ...(version === 15 ? ['create-role'] : [])],
    ])
      expect(kinds).toContain(kind)
  }, 60_000)

  test('says of each finding which fences it gets around: what writes past a read-only fence was told so', async () => {
    const { fence } = readOnly(f)
    const before = await f.db.auditWriters()
    await fence.apply(CAUSE)
    const past = (await oracle()).filter(
      s => !s.sql.startsWith('do $$') && !s.sql.startsWith('set local session') && !s.sql.startsWith('create function pg_temp'),
    )
    await liftStanding(fence, CAUSE)
    await fence.close()
    expect(
      missed(
        past,
        before.filter(x => x.around.includes('read-only')),
      ),
    ).toEqual([])
    const of = (subject: string, kind?: string) =>
      before.filter(x => x.subject === subject && (kind === undefined || x.kind === kind)).map(x => x.around)
    expect(of('direct', 'other-writer')).toEqual([['credentials']])
    expect(of('member')).toEqual([['credentials']])
    expect(of('by definer')).toEqual([['credentials', 'read-only']])
    expect(of('by fenced definer')).toEqual([['credentials']])
    expect(of('by text')).toEqual([['boundary', 'credentials', 'read-only']])
    expect(of('may replicate', 'replica-session')).toEqual([['boundary']])
    expect(of('bypasses rls', 'bypass-rls')).toEqual([[]])
    expect(of('app_writer')).toEqual([])
  }, 60_000)

  test('asks everything in one round trip', async () => {
    const real = createConnection({
      login: f.region.database.operator,
      secrets,
      name: 'audited',
      applicationName: 'homeregion observer',
      callTimeoutMs: 10_000,
      unreachable: 'region-unreachable',
    })
    await real.warm()
    let [sent, sentAtFirstAnswer] = [0, 0]
    const counted: Connection = {
      ...real,
      query: async (...call) => {
        sent += 1
        const answer = await real.query(...call)
        if (sentAtFirstAnswer === 0) sentAtFirstAnswer = sent
        return answer
      },
    }
    const findings = await auditWriters(counted, f.config, f.region, renderBoundary(f.config, f.region).expected)
    expect(findings.length).toBeGreaterThan(25)
    const { rows } = await admin.query<{ roles: number; tables: number }>(
      `select (select count(*)::int from pg_roles where rolname !~ '^pg_') as roles,
              (select count(*)::int from pg_class where relkind in ('r', 'p') and oid >= 16384) as tables`,
    )
    expect(rows[0]?.roles).toBeGreaterThanOrEqual(30)
    expect(rows[0]?.tables).toBeGreaterThanOrEqual(60)
    expect([sent, sentAtFirstAnswer]).toEqual([4, 4])
    await real.close()
  })

  test.each([
    ['grants to everybody', 'grant insert on account to public', 'public-writer public'],
    ['a role setting for everybody', `alter database app set session_replication_role = replica`, 'replica-session public'],
    ['a writer that applies copies', 'grant homeregion_apply to app_writer', 'apply-writer app_writer'],
    ['an event trigger that is off', 'alter event trigger homeregion_partitions disable', 'later-partitions homeregion_partitions'],
    [
      'default privileges for everybody',
      'alter default privileges for role app_owner grant delete on tables to public',
      'default-privileges public',
    ],
    ['a table owner that can log in', 'alter role app_owner login', 'table-owner app_owner'],
    [
      'a chain of grants',
      `grant insert on account to chief with grant option; set role chief; grant insert on account to app_relay; reset role`,
      'other-writer app_relay',
    ],
  ])('names %s, and the statement that closes it', async (_name, breaks, expected) => {
    const found = async () => (await f.db.auditWriters()).find(x => `${x.kind} ${x.subject}` === expected)
    expect(await found()).toBeUndefined()
    await admin.query(breaks)
    const finding = await found()
    expect(finding?.closes).toBeTypeOf('string')
    await admin.query(finding?.closes ?? '')
    expect(await found()).toBeUndefined()
  })

  test('an extension that opens sessions is named where there is one', async () => {
    const { rows } = await admin.query(`select 1 from pg_available_extensions where name = 'dblink'`)
    if (rows.length === 0) return
    await admin.query('create extension dblink')
    const finding = (await f.db.auditWriters()).find(x => x.kind === 'extension')
    expect(finding).toMatchObject({ subject: 'dblink', closes: 'drop extension dblink' })
    await admin.query(finding?.closes ?? '')
    expect((await f.db.auditWriters()).some(x => x.kind === 'extension')).toBe(false)
  })

  test('every statement that is said to close a way closes it', async () => {
    const id = (x: AuditFinding) => `${x.kind} ${x.subject} ${x.why.replace(/; no declared writer.*/, '')} ${x.closes ?? ''}`
    const open = (await f.db.auditWriters()).filter(x => x.closes !== null && x.subject !== 'postgres')
    expect(open.length).toBeGreaterThan(25)
    let closed = 0
    let now: readonly AuditFinding[] = open
    for (const finding of open) {
      // One statement may close more than one way.
      if (!now.some(x => id(x) === id(finding))) continue
      await admin.query(finding.closes ?? '')
      now = await f.db.auditWriters()
      expect(now.map(id)).not.toContain(id(finding))
      closed += 1
    }
    expect(closed).toBeGreaterThan(20)
    // This test's own session is the superuser's.
    const left = now.filter(x => !x.accepted && x.subject !== 'postgres')
    expect(left.map(x => `${x.kind} ${x.subject}`)).toEqual([])
  }, 60_000)
})
