import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { RunLease } from '../../src/domain/journal.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { Plan } from '../../src/domain/plan.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { HOLDER, only, planFor } from './control-plane-fixture.ts'
import { BOB, type ForcedFixture, failoverPlan, startAttempt, startForcedFixture } from './forced-fixture.ts'

// What somebody with the operator's password could send, one piece forged at a time; undone at the end.
let fixture: ForcedFixture
let store: ControlPlane
let plan: Plan
let lease: RunLease
let attempt: string
let other: RunLease
let otherAttempt: string
let otherPlan: string
let transfer: RunLease
let transferAttempt: string

beforeAll(async () => {
  fixture = await startForcedFixture()
  store = fixture.store()
  const one = await only(store.register([{ key: 'tenant-1', homeRegion: 'region-a' }]))
  const two = await only(store.register([{ key: 'tenant-2', homeRegion: 'region-a' }]))
  const three = await only(store.register([{ key: 'tenant-3', homeRegion: 'region-a' }]))
  const open = async (record: OwnershipRecord, how: Plan): Promise<[RunLease, string]> => {
    const opened = await store.openRun(how, HOLDER, record.key)
    return [opened, await startAttempt(store, opened)]
  }
  plan = failoverPlan([one])
  ;[lease, attempt] = await open(one, plan)
  const second = failoverPlan([two])
  otherPlan = second.id
  ;[other, otherAttempt] = await open(two, second)
  ;[transfer, transferAttempt] = await open(three, planFor([three], 'region-b'))
})
afterAll(async () => {
  await fixture.stop()
})

const CHECKS = {
  dark: 'source-dark',
  ahead: 'no-region-ahead',
  fence: 'external-fence-holds',
  loss: 'loss-acknowledged',
  target: 'target-can-write',
} as const
type Piece = Readonly<Record<string, unknown>>
type Forged = {
  evidence?: Partial<Record<keyof typeof CHECKS, Piece | 'earlier'>>
  acknowledgement?: Piece
  failover?: Piece
  activation?: Piece
  isolate?: Piece
  activate?: Piece
  before?: (client: pg.Client) => Promise<unknown>
}

async function insert(client: pg.Client, table: string, row: Piece): Promise<void> {
  const columns = Object.keys(row)
  const values = columns.map((_, i) => `$${i + 1}`).join(', ')
  await client.query(`insert into homeregion_control.${table} (${columns.join(', ')}) values (${values})`, Object.values(row))
}

async function force(client: pg.Client, forged: Forged): Promise<string> {
  const ids: Record<string, string> = {}
  await client.query('begin')
  try {
    const earlier = (piece: keyof typeof CHECKS) => Number(forged.evidence?.[piece] === 'earlier')
    for (const piece of (Object.keys(CHECKS) as (keyof typeof CHECKS)[]).toSorted((a, b) => earlier(b) - earlier(a))) {
      const change = forged.evidence?.[piece]
      const id = randomUUID()
      ids[piece] = id
      await insert(client, 'evidence', {
        ...{ id, nth: 0, run_id: lease.runId, key: null, check_name: CHECKS[piece], verdict: 'pass', observed: '', required: '' },
        ...{ observer: '', step: 'activate', attempt_id: attempt, as_of: new Date(), as_of_monotonic_ms: 1 },
        ...(typeof change === 'object' ? change : {}),
      })
      if (change !== 'earlier') continue
      await client.query('commit')
      await client.query('begin')
    }
    await forged.before?.(client)
    const [id, acknowledgement] = [randomUUID(), randomUUID()]
    const run = { run_id: lease.runId }
    const move = { source: 'region-a', target: 'region-b' }
    await insert(client, 'acknowledgement', {
      ...{ id: acknowledgement, ...run, plan_id: plan.id, kind: 'bound', bound_ms: 30_000, keys_sha256: 'k' },
      ...forged.acknowledgement,
    })
    await insert(client, 'forced_failover', {
      ...{ id, ...run, ...move, keys: 1, attempt_id: attempt, token: lease.token, fence_check: CHECKS.fence },
      ...{ dark_evidence_id: ids.dark, ahead_evidence_id: ids.ahead, fence_evidence_id: ids.fence, loss_evidence_id: ids.loss },
      ...{ target_evidence_id: ids.target },
      ...{ approval_policy_id: 2, above_keys: 100_000, acknowledgement_id: acknowledgement, bound_ms: 30_000, keys_sha256: 'k' },
      ...{ estimate_sha256: 'e', estimate: {} },
      ...forged.failover,
    })
    await insert(client, 'forced_activation', {
      ...{ forced_id: id, nth: 1, ...run, key: 'tenant-1', ...move, epoch: 1, from_seq: 1, keys: 1, bound_ms: 30_000, rpo: 'at-most' },
      ...{ rpo_ms: 60_000, unknown_ms: 10_400, recoverable: 0 },
      ...forged.activation,
    })
    const row = { key: 'tenant-1', ...run, token: lease.token, forced_id: id, from_home: 'region-a', from_epoch: 1 }
    await insert(client, 'ownership_log', {
      ...row,
      ...{ seq: 2, prev_seq: 1, transition: 'isolate', from_state: 'ACTIVE', from_target: '', from_run: '' },
      ...{ to_state: 'FENCED', to_home: 'region-a', to_epoch: 1, to_target: 'region-b' },
      ...forged.isolate,
    })
    await insert(client, 'ownership_log', {
      ...row,
      ...{ seq: 3, prev_seq: 2, transition: 'activate-forced', from_state: 'FENCED', from_target: 'region-b', from_run: lease.runId },
      ...{ to_state: 'ACTIVE', to_home: 'region-b', to_epoch: 2, to_target: '' },
      ...forged.activate,
    })
    return 'accepted'
  } catch (error) {
    const { code, constraint, column } = error as pg.DatabaseError
    return `${code ?? String(error)} ${constraint ?? column ?? ''}`.trim()
  } finally {
    await client.query('rollback')
  }
}

describe.each(['operator', 'admin'] as const)('by hand, as the %s', role => {
  let client: pg.Client
  beforeAll(async () => {
    client = await fixture.raw(role)
  })

  test('the control: a forced failover on all its proofs is accepted', async () => {
    expect(await force(client, {})).toBe('accepted')
  })

  test.each(Object.keys(CHECKS) as (keyof typeof CHECKS)[])(
    'the proof %s is not a pass of this run, attempt and transaction: refused',
    async piece => {
      const forgeries: (Piece | 'earlier')[] = [
        { verdict: 'fail' },
        { verdict: 'unknown' },
        { attempt_id: otherAttempt },
        { run_id: other.runId, attempt_id: otherAttempt },
        { check_name: 'regions-reachable' },
        'earlier',
      ]
      for (const forged of forgeries) {
        const answer = await force(client, { evidence: { [piece]: forged } })
        expect({ forged, answer }).toEqual({ forged, answer: `23503 forced_failover_${piece}` })
      }
      const missing = piece === 'ahead' ? '23514 forced_failover_ahead_needed' : `23502 ${piece}_evidence_id`
      expect(await force(client, { failover: { [`${piece}_evidence_id`]: null } })).toBe(missing)
    },
  )

  const cases: readonly [string, () => Forged, string][] = [
    ['isolated without a forced failover', () => ({ isolate: { forced_id: null } }), '23514 ownership_log_forced'],
    ['activated without one', () => ({ activate: { forced_id: null } }), '23514 ownership_log_forced'],
    ['on one that does not exist', () => ({ isolate: { forced_id: randomUUID() } }), '23503 ownership_log_forced_activation'],
    ['of another epoch than was estimated', () => ({ activation: { epoch: 2 } }), '23503 forced_activation_move'],
    ['two epochs at once', () => ({ activate: { to_epoch: 3 } }), '23514 ownership_log_transition'],
    ['to another target', () => ({ isolate: { to_target: 'region-c' } }), '23503 ownership_log_forced_activation'],
    [
      'a forged predecessor',
      () => ({ isolate: { from_home: 'region-c', to_home: 'region-c' } }),
      '23503 ownership_log_(predecessor|forced_activation)',
    ],
    ['a skipped predecessor', () => ({ activate: { seq: 4, prev_seq: 3 } }), '23503 ownership_log_predecessor'],
    ['by a run that did not take the key', () => ({ isolate: { run_id: other.runId } }), '23503 ownership_log_forced_activation'],
    [
      'activated by a run that did not take the key',
      () => ({ activate: { run_id: other.runId, from_run: other.runId } }),
      '23503 ownership_log_(predecessor|forced_activation)',
    ],
    ['a key of another run', () => ({ activation: { key: 'tenant-2' } }), '23503 forced_activation_move'],
    ['more keys than were approved', () => ({ activation: { nth: 2 } }), '23514 forced_activation_nth'],
    ['a key that may lose nothing', () => ({ activation: { rpo: 'never', rpo_ms: null } }), '23514 forced_activation_rpo'],
    ['a key that would lose too much', () => ({ activation: { rpo_ms: 5_000 } }), '23514 forced_activation_rpo'],
    ['an unknown loss under a bound', () => ({ activation: { unknown_ms: null } }), '23514 forced_activation_acknowledged'],
    [
      'a loss nobody owned',
      () => ({ activation: { rpo: 'any', rpo_ms: null, unknown_ms: 30_001 } }),
      '23514 forced_activation_acknowledged',
    ],
    ['an acknowledgement of another bound', () => ({ failover: { bound_ms: 40_000 } }), '23503 forced_failover_ack'],
    ['an acknowledgement of other keys', () => ({ acknowledgement: { keys_sha256: 'x' } }), '23503 forced_failover_ack'],
    ['an acknowledgement of another plan', () => ({ acknowledgement: { plan_id: 'x' } }), '23503 acknowledgement_run'],
    [
      'an acknowledgement of another run',
      () => ({ acknowledgement: { run_id: other.runId, plan_id: otherPlan } }),
      '23503 forced_failover_ack',
    ],
    [
      'a token that was never issued',
      () => ({ acknowledgement: { kind: 'token', token_hash: 'x', token_expires_at: '2999-01-01', token_used_at: '2026-01-01' } }),
      '23503 acknowledgement_token',
    ],
    [
      'a token that was used too late',
      () => ({ acknowledgement: { kind: 'token', token_hash: 'x', token_expires_at: '2026-01-01', token_used_at: '2999-01-01' } }),
      '23514 acknowledgement_in_time',
    ],
    ['a token without its time', () => ({ acknowledgement: { kind: 'token', token_hash: 'x' } }), '23514 acknowledgement_with_token'],
    [
      'a person’s word without approval',
      () => ({ evidence: { fence: { check_name: 'source-attested' } }, failover: { fence_check: 'source-attested' } }),
      'HC011',
    ],
    ['a fence that is none', () => ({ failover: { fence_check: 'fence-holds' } }), '23514 forced_failover_fence_check'],
    [
      'a lease that nobody withheld',
      () => ({ evidence: { fence: { check_name: 'lease-over' } }, failover: { fence_check: 'lease-over' } }),
      'HC015',
    ],
    ['under a policy of one’s own', () => ({ failover: { above_keys: 1e9 } }), '23503 forced_failover_policy'],
  ]
  test.each(cases)('%s: refused', async (_, forged, expected) => {
    expect(await force(client, forged())).toMatch(new RegExp(`^${expected}`))
  })

  test('a transfer can have no forced failover, whatever stands in it', async () => {
    const run = client.query(
      `insert into homeregion_control.forced_failover (id, run_id, source, target, keys, attempt_id, token, fence_check, dark_evidence_id,
        ahead_evidence_id, fence_evidence_id, loss_evidence_id, target_evidence_id, approval_policy_id, above_keys, acknowledgement_id, bound_ms, keys_sha256,
        estimate_sha256, estimate)
      select gen_random_uuid(), $1, 'region-a', 'region-b', 1, $2, 1, 'external-fence-holds', e, e, e, e, e, 2, 100000, e, -1, 'k', 'e', '{}'
      from (select gen_random_uuid() as e) x`,
      [transfer.runId, transferAttempt],
    )
    await expect(run).rejects.toMatchObject({ code: '23503', constraint: 'forced_failover_run' })
    const line = client.query(`update homeregion_control.run_key set hold = 'seizing' where run_id = $1`, [transfer.runId])
    await expect(line).rejects.toMatchObject({ code: '23503', constraint: 'run_key_seizing' })
  })

  test('no key is let go, no exile ended and no lease granted behind the back of the rules', async () => {
    for (const [sql, answer] of [
      [`update homeregion_control.run_key set hold = 'seized' where key = 'tenant-1'`, { constraint: 'run_key_seized' }],
      [`update homeregion_control.run_key set hold = 'seized', seized_by = gen_random_uuid() where key = 'tenant-1'`, { code: '23503' }],
      [`insert into homeregion_control.region_standing (region) values ('x') on conflict do nothing`, null],
      [`update homeregion_control.region_standing set exiled = true where region = 'x'`, { code: 'HC012' }],
    ] as const) {
      if (answer === null) await client.query(sql)
      else await expect(client.query(sql)).rejects.toMatchObject(answer)
    }
  })
})

test.each([
  `update homeregion_control.approval set verdict = 'approved'`,
  `insert into homeregion_control.approval (run_id, starter, approver, verdict, reason, break_glass) values ('r', 's', '${BOB}', 'approved', 'x', false)`,
  'delete from homeregion_control.approval',
  `update homeregion_control.ack_token set expires_at = 'infinity'`,
  'update homeregion_control.acknowledgement set bound_ms = -1',
  `update homeregion_control.redeemed_token set run_id = 'another'`,
  `insert into homeregion_control.redeemed_token (hash, run_id, plan_id, expires_at, login) values ('h', 'r', 'p', now(), null)`,
  'update homeregion_control.forced_failover set keys = 9',
  'insert into homeregion_control.forced_failover (id, ahead_check) values (gen_random_uuid(), null)',
  'update homeregion_control.approval_policy set needed = 1',
  'delete from homeregion_control.exile',
  'delete from homeregion_control.reconcile_item',
  `update homeregion_control.reconcile_item set content = '{}'`,
])('the operator login cannot rewrite the record: %s', async sql => {
  const client = await fixture.raw('operator')
  await expect(client.query(sql)).rejects.toMatchObject({ code: '42501' })
})
