import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { installControlPlane } from '../../src/adapters/control-plane/install.ts'
import { CONTROL_PLANE_VERSION, migrations } from '../../src/adapters/control-plane/schema.ts'
import type { RunLease } from '../../src/domain/journal.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { HOLDER, only, permitFor, toCatchUp } from './control-plane-fixture.ts'
import { BOB, type ForcedFixture, failoverPlan, forcedChange, startForcedFixture } from './forced-fixture.ts'

// A control plane that an older tool installed and used: init brings it to the present, and everything that was recorded stays.
const FORCED_SINCE = 3
const REDEEMED_SINCE = 9

let fixture: ForcedFixture
let admin: pg.Client
beforeAll(async () => {
  fixture = await startForcedFixture()
  admin = await fixture.raw('admin')
})
afterAll(async () => {
  await fixture.stop()
})

/** What the tool of that version had installed; the login of its operator owns it, as where one login does everything. */
async function installed(version: number): Promise<ControlPlane> {
  await admin.query('drop schema homeregion_control cascade')
  const all = migrations(0).map(s => s.sql)
  const last = all.findIndex(sql => sql.includes('schema_version (version)') && sql.endsWith(`values (${version})`))
  for (const sql of all.slice(0, last + 1)) await admin.query(sql)
  await admin.query(`insert into homeregion_control.installation (service, topology) values ('billing', 'independent')`)
  await admin.query('insert into homeregion_control.interlock_policy values (1, true, true, true, true)')
  if (version >= FORCED_SINCE) await admin.query(`insert into homeregion_control.approval_policy values (1, '["${BOB}"]', 1, 100000, true)`)
  const { controlPlane } = fixture.config
  return fixture.store({ controlPlane: { operator: controlPlane.admin ?? controlPlane.operator, admin: null } })
}

async function registered(store: ControlPlane, key: string, home: string): Promise<OwnershipRecord> {
  await admin.query(
    `insert into homeregion_control.ownership_log (key, seq, transition, to_state, to_home, to_epoch, to_target, run_id, token)
    values ($1, 1, 'register', 'ACTIVE', $2, 1, '', '', 0)`,
    [key, home],
  )
  await admin.query(
    `insert into homeregion_control.ownership (key, seq, state, home_region, epoch, target_region, run_id)
    values ($1, 1, 'ACTIVE', $2, 1, '', '')`,
    [key, home],
  )
  return await only(store.ownership([key]))
}

async function opened(record: OwnershipRecord, target: string): Promise<RunLease> {
  const runId = `run-${randomUUID()}`
  const { rows } = await admin.query<{ token: string }>(
    `insert into homeregion_control.run (id, plan_id, runbook_name, runbook_text, runbook_sha256, runbook_origin, intent, dropped, state, open,
      token, holder_host, holder_pid, holder_user, lease_until)
    values ($1, 'plan', 'transfer', 'steps: []', 'ab', 'test', 'transfer', '[]', 'OPEN', true, nextval('homeregion_control.run_token'), 'h', 1, 'u',
      now()) returning token`,
    [runId],
  )
  await admin.query('insert into homeregion_control.run_key (run_id, key, source, target, epoch, seq) values ($1, $2, $3, $4, $5, $6)', [
    runId,
    record.key,
    record.homeRegion,
    target,
    record.epoch,
    record.seq,
  ])
  return { runId, token: Number(rows[0]?.token) }
}

async function activated(store: ControlPlane, lease: RunLease, ready: OwnershipRecord): Promise<OwnershipRecord> {
  const attempt = randomUUID()
  await store.commit(lease, { starts: [{ id: attempt, key: ready.key, step: 'activate', action: 'activate' }] })
  return await only(
    store.commit(lease, {
      activation: { expected: ready, permit: permitFor(lease, ready, attempt) },
      ends: [{ id: attempt, outcome: 'done', result: { opened: 1 } }],
    }),
  )
}

/** A key that was moved, one in the middle of its move, one at rest; where the version knows it, one that was taken by force. */
async function used(store: ControlPlane, version: number): Promise<{ readonly halfway: RunLease; readonly draining: OwnershipRecord }> {
  const moved = await registered(store, 'moved', 'region-a')
  const first = await opened(moved, 'region-b')
  await activated(store, first, await toCatchUp(store, first, moved, 'region-b'))
  await store.commit(first, { keyOutcomes: [{ key: 'moved', outcome: 'moved' }] })
  await admin.query(
    `update homeregion_control.run set state = 'DONE', open = false, ended_at = now(), lease_until = null, holder_host = null, holder_pid = null,
      holder_user = null where id = $1`,
    [first.runId],
  )
  await registered(store, 'resting', 'region-a')
  if (version >= FORCED_SINCE) await forced(store, await registered(store, 'forced', 'region-dark'))
  const halfway = await registered(store, 'halfway', 'region-a')
  const second = await opened(halfway, 'region-b')
  const draining = await only(store.commit(second, { ownership: [{ transition: 'drain', expected: halfway, target: 'region-b' }] }))
  return { halfway: second, draining }
}

/** By the tool of today, which an older schema lets do so where it takes it for its own. */
async function forced(store: ControlPlane, record: OwnershipRecord): Promise<void> {
  await admin.query(`insert into homeregion_control.schema_version (version, applied_by) values ($1, 'as if') on conflict do nothing`, [
    CONTROL_PLANE_VERSION,
  ])
  const bare =
    (await admin.query<{ there: string | null }>(`select to_regclass('homeregion_control.redeemed_token') as there`)).rows[0]?.there ===
    null
  // What it names, without a rule, where the schema has no such thing yet.
  if (bare) {
    await admin.query('create table homeregion_control.redeemed_token (hash text, run_id text, expires_at timestamptz, at timestamptz)')
    await admin.query('grant all on homeregion_control.redeemed_token to public')
    await admin.query('alter table homeregion_control.acknowledgement add column token_used_at timestamptz')
  }
  const asks = await admin.query(
    `select from information_schema.columns where table_schema = 'homeregion_control' and column_name = 'ahead_evidence_id'`,
  )
  if (asks.rowCount === 0) await admin.query('alter table homeregion_control.forced_failover add column ahead_evidence_id uuid')
  const lease = await store.openRun(failoverPlan([record]), HOLDER, 'region is dark', { seize: true })
  const change = await forcedChange(store, lease, [record], { source: record.homeRegion })
  await store.commit(lease, { forced: change })
  if (asks.rowCount === 0) await admin.query('alter table homeregion_control.forced_failover drop column ahead_evidence_id')
  if (bare) {
    await admin.query('drop table homeregion_control.redeemed_token')
    await admin.query('alter table homeregion_control.acknowledgement drop column token_used_at')
    await tokenUsed(lease.runId)
  }
  await store.commit(lease, { keyOutcomes: [{ key: record.key, outcome: 'moved' }], runState: 'DONE' })
  await admin.query(`delete from homeregion_control.schema_version where applied_by = 'as if'`)
}

const OLD_TOKEN = 'a token of before it had a run'

/** As it stood in the record of a run that had used one. */
async function tokenUsed(runId: string): Promise<void> {
  await admin.query(
    `insert into homeregion_control.ack_token (hash, plan_id, keys_sha256, estimate_sha256, bound_ms, expires_at)
    select $2, r.plan_id, 'k', 'e', 1, now() + interval '1 h' from homeregion_control.run r where r.id = $1`,
    [runId, OLD_TOKEN],
  )
  await admin.query(
    `insert into homeregion_control.acknowledgement (id, run_id, plan_id, kind, bound_ms, keys_sha256, token_hash, token_expires_at)
    select gen_random_uuid(), $1, t.plan_id, 'token', 1, 'k', t.hash, t.expires_at from homeregion_control.ack_token t where t.hash = $2`,
    [runId, OLD_TOKEN],
  )
}

type Recorded = ReadonlyMap<string, readonly Readonly<Record<string, unknown>>[]>

/** Every row of every table, without the columns that are derived from the others. */
async function recorded(): Promise<Recorded> {
  const { rows: tables } = await admin.query<{ name: string; columns: string }>(
    `select c.relname as name, string_agg(format('t.%I', a.attname), ', ' order by a.attnum) as columns
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = 'homeregion_control'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    group by c.relname`,
  )
  const found = new Map<string, readonly Readonly<Record<string, unknown>>[]>()
  for (const { name, columns } of tables) {
    const { rows } = await admin.query<{ row: Record<string, unknown> }>(
      `select to_jsonb(r) as row from (select ${columns} from homeregion_control.${name} t) r`,
    )
    found.set(
      name,
      rows.map(r => r.row),
    )
  }
  return found
}

describe.each(Array.from({ length: CONTROL_PLANE_VERSION - 1 }, (_, i) => i + 1))(
  'a control plane at version %i that was used',
  version => {
    test('is brought to the present by init with all that it recorded, and what was under way goes on', async () => {
      const old = await installed(version)
      const { halfway, draining } = await used(old, version)
      const before = await recorded()
      const histories = await Promise.all(['moved', 'halfway', 'resting'].map(async key => await old.history(key)))
      const failovers = async (from: ControlPlane) => (await from.forcedFailovers({ limit: 5 })).map(f => ({ ...f, ageMs: null }))
      const forcedBefore = version >= FORCED_SINCE ? await failovers(old) : []

      const done = await installControlPlane({ config: fixture.config, secrets: fixture.secrets, dryRun: false })
      expect(done).toMatchObject({ fromVersion: version, version: CONTROL_PLANE_VERSION, applied: true })

      const after = await recorded()
      for (const [table, rows] of before) {
        expect(after.get(table)).toEqual(expect.arrayContaining(rows.map(row => expect.objectContaining(row) as unknown)))
        if (table !== 'schema_version') expect([table, after.get(table)?.length]).toEqual([table, rows.length])
      }
      const store = fixture.store()
      expect(await store.facts()).toMatchObject({ version: CONTROL_PLANE_VERSION, schemaProblems: [], privilegeProblems: [] })
      expect(await Promise.all(['moved', 'halfway', 'resting'].map(async key => await store.history(key)))).toEqual(histories)
      expect(await failovers(store)).toEqual(forcedBefore)
      expect(await store.auditBreak()).toBeNull()
      const [taken] = await store.forcedFailovers({ limit: 1 })
      if (taken !== undefined && version < REDEEMED_SINCE)
        expect(await store.ackTokenOf(taken.runId)).toMatchObject({ hash: OLD_TOKEN, usedBy: taken.runId })

      const lease = await store.takeRun(halfway.runId, HOLDER, true)
      const fenced = await only(store.commit(lease, { ownership: [{ transition: 'fence', expected: draining }] }))
      const ready = await only(store.commit(lease, { ownership: [{ transition: 'catch-up', expected: fenced }] }))
      expect(await activated(store, lease, ready)).toMatchObject({ homeRegion: 'region-b', epoch: 2, state: 'ACTIVE' })
      await store.commit(lease, { keyOutcomes: [{ key: ready.key, outcome: 'moved' }], runState: 'DONE' })
      if (version >= FORCED_SINCE)
        await expect(store.register([{ key: 'another', homeRegion: 'region-dark' }])).rejects.toMatchObject({ code: 'region-exiled' })
      await forced(store, await only(store.ownership(['resting'])))
      expect(await store.auditBreak()).toBeNull()
    })
  },
)
