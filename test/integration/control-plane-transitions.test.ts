import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import {
  FORCED_TRANSITIONS,
  type OwnershipRecord,
  type OwnershipState,
  STATES,
  TRANSITIONS,
  type Transition,
} from '../../src/domain/ownership.ts'
import { type Fixture, HOLDER, only, planFor, startFixture } from './control-plane-fixture.ts'

// Every row somebody with a database login could try to append, against the table of transitions read the slow way.
const KEYS: Readonly<Record<OwnershipState, string>> = {
  ACTIVE: 'tenant-active',
  DRAINING: 'tenant-draining',
  FENCED: 'tenant-fenced',
  CATCH_UP: 'tenant-catch-up',
}
const records = new Map<OwnershipState, OwnershipRecord>()
let fixture: Fixture
let runId: string

beforeAll(async () => {
  fixture = await startFixture()
  const store = fixture.store()
  const homes = await store.register(Object.values(KEYS).map(key => ({ key, homeRegion: 'region-a' })))
  const lease = await store.openRun(planFor(homes, 'region-b'), HOLDER, null)
  runId = lease.runId
  const walk = ['drain', 'fence', 'catch-up'] as const
  for (const [steps, state] of STATES.entries()) {
    let record = await only(store.ownership([KEYS[state]]))
    for (const transition of walk.slice(0, steps)) {
      record = await only(store.commit(lease, { ownership: [{ transition, expected: record, target: 'region-b' }] }))
    }
    expect(record.state).toBe(state)
    records.set(state, record)
  }
})
afterAll(async () => {
  await fixture.stop()
})

type Attempted = { from: OwnershipRecord; transition: string; toState: string; toHome: string; toEpoch: number; toTarget: string }

function everyRow(): Attempted[] {
  const names = [...TRANSITIONS.map(t => t.name), 'teleport']
  const rows: Attempted[] = []
  for (const from of records.values())
    for (const transition of names)
      for (const toState of [...STATES, 'OPEN'])
        for (const toHome of ['region-a', 'region-b', 'region-c'])
          for (const toEpoch of [0, 1, 2, 3])
            for (const toTarget of ['', 'region-a', 'region-b', 'region-c'])
              rows.push({ from, transition, toState, toHome, toEpoch, toTarget })
  return rows
}

/** Written without the product's renderer: what the design says in words. `activate` needs an activation, what is forced a forced failover; these rows have neither. */
function legal(row: Attempted): boolean {
  const rule: Transition | undefined = TRANSITIONS.find(t => t.name === row.transition)
  if (rule === undefined || rule.from === null || rule.home === 'target' || FORCED_TRANSITIONS.some(name => name === rule.name))
    return false
  const epoch = rule.epoch === 'next' ? row.from.epoch + 1 : row.from.epoch
  const targetIsRight =
    row.toState === 'ACTIVE'
      ? row.toTarget === ''
      : rule.from === 'ACTIVE'
        ? row.toTarget !== '' && row.toTarget !== row.from.homeRegion
        : row.toTarget === row.from.targetRegion
  return (
    rule.from === row.from.state && rule.to === row.toState && epoch === row.toEpoch && row.toHome === row.from.homeRegion && targetIsRight
  )
}

/** Tries each row in a subtransaction of its own that is always undone; returns the SQLSTATE, or `accepted`. */
async function tryAll(client: pg.Client, rows: readonly Attempted[]): Promise<string[]> {
  await client.query('begin')
  try {
    await client.query('create temporary table tried (n int primary key, r jsonb, answer text) on commit drop')
    await client.query('insert into tried select ordinality, value, null from jsonb_array_elements($1::jsonb) with ordinality', [
      JSON.stringify(rows),
    ])
    await client.query(`do $$
declare t record;
begin
  for t in select * from tried order by n loop
    begin
      insert into homeregion_control.ownership_log (key, seq, transition, prev_seq, from_state, from_home, from_epoch, from_target, from_run,
        to_state, to_home, to_epoch, to_target, run_id, token)
      values (t.r->'from'->>'key', (t.r->'from'->>'seq')::bigint + 1, t.r->>'transition', (t.r->'from'->>'seq')::bigint,
        t.r->'from'->>'state', t.r->'from'->>'homeRegion', (t.r->'from'->>'epoch')::bigint, coalesce(t.r->'from'->>'targetRegion', ''),
        coalesce(t.r->'from'->>'runId', ''), t.r->>'toState', t.r->>'toHome', (t.r->>'toEpoch')::bigint, t.r->>'toTarget',
        '${runId}', 1);
      raise exception using errcode = 'ZZ001';
    exception when others then
      update tried set answer = case when sqlstate = 'ZZ001' then 'accepted' else sqlstate end where n = t.n;
    end;
  end loop;
end $$`)
    const answers = await client.query<{ answer: string }>('select answer from tried order by n')
    return answers.rows.map(r => r.answer)
  } finally {
    await client.query('rollback')
  }
}

describe.each(['operator', 'admin'] as const)('as the %s', role => {
  test('the log takes exactly the rows of the transition table, of all states, names, homes, epochs and targets', async () => {
    const rows = everyRow()
    const answers = await tryAll(await fixture.raw(role), rows)
    const wrong = rows.filter((row, i) => (answers[i] === 'accepted') !== legal(row))
    expect(wrong).toEqual([])
    // The oracle is not blind: drain to either other region, fence, catch-up and the three ways back are accepted.
    expect(answers.filter(a => a === 'accepted')).toHaveLength(2 + 1 + 1 + 3)
    expect(new Set(answers)).toEqual(new Set(['accepted', '23514']))
  })

  const forgeries: readonly [string, Readonly<Record<string, unknown>>, string][] = [
    ['nothing forged', {}, 'accepted'],
    ['another state', { from_state: 'DRAINING', transition: 'fence', to_state: 'FENCED' }, '23503'],
    ['another home', { from_home: 'region-c', to_home: 'region-c' }, '23503'],
    ['another epoch', { from_epoch: 7, to_epoch: 7 }, '23503'],
    ['another target', { from_target: 'region-c', to_target: 'region-c' }, '23503'],
    ['another run', { from_run: 'run-forged', run_id: 'run-forged' }, '23503'],
    ['no state', { from_state: null }, '23514'],
    ['no home', { from_home: null }, '23514'],
    ['no epoch', { from_epoch: null }, '23514'],
    ['no target', { from_target: null }, '23514'],
    ['no run', { from_run: null }, '23514'],
    ['no number', { prev_seq: null }, '23514'],
    ['a number skipped', { seq: 5, prev_seq: 4 }, '23503'],
    ['a number skipped, the predecessor kept', { seq: 5 }, '23514'],
    ['a number used', { seq: 3, prev_seq: 2 }, '23505'],
    ['a second registration', { transition: 'register', prev_seq: null, from_state: null, from_home: null, from_epoch: null }, '23514'],
  ]
  test.each(forgeries)('a forged predecessor is refused: %s', async (_, forged, expected) => {
    const from = records.get('FENCED')
    const row = {
      ...{ key: from?.key, seq: 4, prev_seq: 3, transition: 'catch-up' },
      ...{ from_state: 'FENCED', from_home: 'region-a', from_epoch: 1, from_target: 'region-b', from_run: runId },
      ...{ to_state: 'CATCH_UP', to_home: 'region-a', to_epoch: 1, to_target: 'region-b', run_id: runId, token: 1 },
      ...forged,
    }
    const client = await fixture.raw(role)
    await client.query('begin')
    const columns = Object.keys(row)
    const answer = await client
      .query(
        `insert into homeregion_control.ownership_log (${columns.join(', ')}) values (${columns.map((_, i) => `$${i + 1}`).join(', ')})`,
        Object.values(row),
      )
      .then(
        () => 'accepted',
        (error: unknown) => (error as pg.DatabaseError).code,
      )
    await client.query('rollback')
    expect(answer).toBe(expected)
  })

  test('the current record cannot be pointed back at an earlier owner', async () => {
    const client = await fixture.raw(role)
    const back = client.query(
      `update homeregion_control.ownership o set seq = l.seq, state = l.to_state, target_region = l.to_target, run_id = l.run_id
      from homeregion_control.ownership_log l where o.key = $1 and l.key = o.key and l.seq = 1`,
      [KEYS.FENCED],
    )
    await expect(back).rejects.toMatchObject({ code: 'HC007' })
  })

  test('the current record cannot claim what its log does not say', async () => {
    const client = await fixture.raw(role)
    const claim = client.query(`update homeregion_control.ownership set seq = seq + 1, home_region = 'region-c' where key = $1`, [
      KEYS.FENCED,
    ])
    await expect(claim).rejects.toMatchObject({ code: '23503', constraint: 'ownership_is_logged' })
  })
})

test.each([
  'update homeregion_control.ownership_log set to_home = to_home',
  'delete from homeregion_control.ownership_log',
  'delete from homeregion_control.ownership',
  'truncate homeregion_control.evidence cascade',
  `update homeregion_control.evidence set verdict = 'pass'`,
  'update homeregion_control.audit set event = event',
  'update homeregion_control.activation set at = at',
  `update homeregion_control.attempt set action = 'x'`,
  'update homeregion_control.run_key set open = false',
  `update homeregion_control.interlock_policy set needs_barrier = false`,
  `insert into homeregion_control.audit (seq, actor, event, detail, prev_hash, hash) values (999, 'somebody', 'e', '{}', 'x', 'y')`,
  `insert into homeregion_control.ownership_log (key, seq, transition, to_state, to_home, to_epoch, to_target, run_id, token, at)
   values ('k', 1, 'register', 'ACTIVE', 'region-a', 1, '', '', 0, 'yesterday')`,
  `select setval('homeregion_control.run_token', 1)`,
])('the operator login cannot rewrite the record: %s', async sql => {
  const client = await fixture.raw('operator')
  await expect(client.query(sql)).rejects.toMatchObject({ code: '42501' })
})
