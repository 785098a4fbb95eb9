import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import type { ForcedChange, RunLease } from '../../src/domain/journal.ts'
import { type Acknowledgement, hashOfKeys } from '../../src/domain/loss.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { ControlPlane } from '../../src/domain/ports.ts'
import { forcedChecks } from '../../src/engine/checks/forced.ts'
import type { Engine } from '../../src/engine/context.ts'
import type { ForcedMove } from '../../src/engine/forced-move.ts'
import { HOLDER, moveKey, OTHER, only, planFor } from './control-plane-fixture.ts'
import { BOB, EVE, type ForcedFixture, failoverPlan, forcedChange, startForcedFixture } from './forced-fixture.ts'
import { startStandby } from './standby-fixture.ts'
import { startTcpGate } from './tcp-gate.ts'

let fixture: ForcedFixture
let store: ControlPlane
let regions = 0
let keys = 0

beforeAll(async () => {
  fixture = await startForcedFixture()
  store = fixture.store()
})
afterAll(async () => {
  await fixture.stop()
})

/** A source and a target of their own for each test: an exile of one is no business of the others. */
function pair(): { readonly source: string; readonly target: string } {
  regions += 1
  return { source: `source-${regions}`, target: `target-${regions}` }
}

async function registered(homeRegion: string, count = 1, prefix = 'tenant'): Promise<readonly OwnershipRecord[]> {
  const names = Array.from({ length: count }, () => {
    keys += 1
    return { key: `${prefix}-${String(keys).padStart(5, '0')}`, homeRegion }
  })
  return await store.register(names)
}

async function failover(records: readonly OwnershipRecord[], target: string): Promise<RunLease> {
  return await store.openRun(failoverPlan(records, target), HOLDER, 'region is dark', { seize: true })
}

describe('a forced failover', () => {
  test('takes all keys in one commit, and says afterwards on what it stood', async () => {
    const { source, target } = pair()
    const records = await registered(source, 3)
    const lease = await failover(records, target)
    const change = await forcedChange(store, lease, records, { source, target })
    const moved = await store.commit(lease, { forced: change })
    expect(moved).toHaveLength(3)
    for (const record of moved) expect(record).toMatchObject({ homeRegion: target, epoch: 2, state: 'ACTIVE', targetRegion: null, seq: 3 })
    const log = await store.history(records[0]?.key ?? '')
    expect(log.map(r => [r.transition, r.state, r.epoch, r.homeRegion])).toEqual([
      ['register', 'ACTIVE', 1, source],
      ['isolate', 'FENCED', 1, source],
      ['activate-forced', 'ACTIVE', 2, target],
    ])
    expect(await store.forcedFailovers({ source, limit: 5 })).toMatchObject([
      {
        ...{ runId: lease.runId, source, target, fence: 'external-fence-holds', by: 'homeregion_operator' },
        acknowledgement: { kind: 'bound', boundMs: 30_000, by: 'homeregion_operator' },
        keys: records.map((r, i) => ({ key: r.key, epoch: 1, recoverable: i === 0 ? 3 : 0, unknown: { writes: 53, ms: 10_400 } })),
      },
    ])
    expect(await store.exiles(source)).toMatchObject([{ region: source, runIds: [lease.runId], done: [], undecided: 0, endedAt: null }])
    await store.commit(lease, { keyOutcomes: records.map(r => ({ key: r.key, outcome: 'moved' })), runState: 'DONE' })
    // A cool-down counts from the commit, and an agent's from the end of its run: neither stands still when the run is closed.
    const ages = async () => {
      const [failover, run] = await Promise.all([store.forcedFailovers({ source, limit: 1 }), store.run(lease.runId)])
      return { failover: failover[0]?.ageMs ?? 0, run: -(run?.leaseLeftMs ?? 0) }
    }
    await vi.waitFor(async () => expect((await ages()).run).toBeGreaterThan(0))
    const { failover: ageMs, run: endedMs } = await ages()
    expect(ageMs).toBeGreaterThanOrEqual(endedMs)
    expect(await store.auditBreak()).toBeNull()
  })

  test('happens once, also when its answer was lost: the world is read again, and the same change finds the keys moved', async () => {
    const { source, target } = pair()
    const records = await registered(source, 2)
    const lease = await failover(records, target)
    const change = await forcedChange(store, lease, records, { source, target })
    const gate = await startTcpGate({ port: fixture.server.port })
    const operator = fixture.config.controlPlane.operator
    const url = operator.url.replace(`:${fixture.server.port}/`, `:${gate.port}/`)
    const far = fixture.store({ controlPlane: { ...fixture.config.controlPlane, operator: { ...operator, url } } })
    await far.run(lease.runId)
    gate.loseAnswers()
    await expect(far.commit(lease, { forced: change })).rejects.toMatchObject({ code: 'outcome-unknown' })
    const landed = async () => (await store.ownership(records.map(r => r.key))).map(r => r.homeRegion)
    await vi.waitFor(async () => expect(await landed()).toEqual([target, target]), { timeout: 10_000 })
    await gate.stop()
    await expect(store.commit(lease, { forced: change })).rejects.toMatchObject({ code: 'epoch-moved' })
    expect(await store.forcedFailovers({ runId: lease.runId, limit: 5 })).toHaveLength(1)
  })

  test('takes keys in any state from the runs that hold them; a run with nothing left is closed, one with a key on its way waits for a person', async () => {
    const { source, target } = pair()
    const [one, two, three] = await registered(source, 3)
    if (one === undefined || two === undefined || three === undefined) throw new Error('not registered')
    const first = await store.openRun(planFor([one], 'target-0'), OTHER, null)
    const drained = await only(store.commit(first, { ownership: [{ transition: 'drain', expected: one, target: 'target-0' }] }))
    const fenced = await only(store.commit(first, { ownership: [{ transition: 'fence', expected: drained }] }))
    const second = await store.openRun(planFor([two, three], 'target-0'), OTHER, null)
    const draining = await only(store.commit(second, { ownership: [{ transition: 'drain', expected: two, target: 'target-0' }] }))
    await store.commit(second, { ownership: [{ transition: 'drain', expected: three, target: 'target-0' }] })

    const records = [fenced, draining]
    await expect(store.openRun(failoverPlan(records, target), HOLDER, null)).rejects.toMatchObject({ code: 'key-busy' })
    const lease = await failover(records, target)
    // In line: neither a second failover nor a new run gets between, and the runs themselves go on.
    await expect(failover(records, target)).rejects.toMatchObject({ code: 'key-busy', fields: { runId: lease.runId } })
    await store.renew(first)
    const moved = await store.commit(lease, { forced: await forcedChange(store, lease, records, { source, target }) })
    expect(moved.map(r => [r.state, r.homeRegion, r.epoch, r.runId])).toEqual(records.map(() => ['ACTIVE', target, 2, lease.runId]))
    expect((await store.history(fenced.key)).map(r => r.transition)).toEqual([
      'register',
      'drain',
      'fence',
      'isolate-fenced',
      'activate-forced',
    ])
    expect(await store.run(first.runId)).toMatchObject({ state: 'SEIZED', holder: null, moves: [{ outcome: 'not-moved' }] })
    await expect(store.commit(first, { ownership: [{ transition: 'catch-up', expected: fenced }] })).rejects.toMatchObject({
      code: 'run-closed',
      text: { fact: expect.stringContaining(`SEIZED by ${lease.runId}`) as unknown, next: 'homeregion status' },
    })
    expect(await store.run(second.runId)).toMatchObject({ state: 'NEEDS_HUMAN', leaseAlive: false })
    await expect(store.commit(second, { ownership: [{ transition: 'fence', expected: draining }] })).rejects.toMatchObject({
      code: 'epoch-moved',
    })
    await store.commit(lease, { runState: 'DONE' })
    const back = await only(store.ownership([three.key]))
    await store.commit(second, { ownership: [{ transition: 'resume-drained', expected: back }], runState: 'ABORTED' })
  })

  test('of two that are opened at once over the same keys one takes them, and two commits of one run move them once', async () => {
    const { source, target } = pair()
    const records = await registered(source, 5)
    const opened = await Promise.allSettled([failover(records, target), failover(records.toReversed(), target)])
    const leases = opened.flatMap(o => (o.status === 'fulfilled' ? [o.value] : []))
    // The second may stand in line for what the first holds; only one of them can commit.
    const changes = await Promise.all(leases.map(async lease => await forcedChange(store, lease, records, { source, target })))
    const other = fixture.store()
    const done = await Promise.allSettled(
      leases.flatMap((lease, i) => [store, other].map(async s => await s.commit(lease, { forced: changes[i] as ForcedChange }))),
    )
    expect(done.filter(d => d.status === 'fulfilled')).toHaveLength(1)
    for (const record of await store.ownership(records.map(r => r.key)))
      expect(record).toMatchObject({ homeRegion: target, epoch: 2, seq: 3 })
  })

  test('sends the source into exile: it is nobody’s target and gets nothing new until each step is done and each item decided', async () => {
    const { source, target } = pair()
    const [record] = await registered(source)
    if (record === undefined) throw new Error('not registered')
    await store.leadAgents('agent-1', 60_000)
    await store.grantLease(source, 'agent-1', 1_000, 100)
    const lease = await failover([record], target)
    const moved = await only(store.commit(lease, { forced: await forcedChange(store, lease, [record], { source, target }) }))
    await store.commit(lease, { runState: 'DONE' })
    await expect(moveKey(store, moved, source)).rejects.toMatchObject({ code: 'region-exiled' })
    await expect(registered(source)).rejects.toMatchObject({ code: 'region-exiled' })
    await expect(store.grantLease(source, 'agent-1', 1_000, 100)).rejects.toMatchObject({ code: 'lease-withheld' })
    await expect(store.releaseLease(source, null)).rejects.toMatchObject({ code: 'region-exiled' })
    const elsewhere = await registered(pair().source)
    const back = await failover(elsewhere, source)
    const change = await forcedChange(store, back, elsewhere, { source: elsewhere[0]?.homeRegion ?? '', target: source })
    await expect(store.commit(back, { forced: change })).rejects.toMatchObject({ code: 'region-exiled' })

    await expect(store.noteExile(source, 'listed')).rejects.toMatchObject({ code: 'region-exiled' })
    await store.noteExile(source, 'fenced')
    const item = { id: 'event-1', key: record.key, kind: 'event', subject: 'invoice 1, version 3', content: { total: 5 } } as const
    await store.putReconcileItems(lease.runId, [item, { ...item, id: 'event-2' }])
    await store.putReconcileItems(lease.runId, [item])
    await store.noteExile(source, 'listed')
    await store.noteExile(source, 'level')
    await expect(store.endExile(source, 'all level')).rejects.toMatchObject({ code: 'region-exiled' })
    const raw = await fixture.raw('admin')
    const early = raw.query(`update homeregion_control.exile set ended_at = now(), ended_by = 'x', end_reason = 'x' where region = $1`, [
      source,
    ])
    await expect(early).rejects.toMatchObject({ code: 'HC012' })
    expect(await store.reconcileItems(lease.runId, { undecided: true, limit: 10 })).toHaveLength(2)
    expect(await store.reconcileCounts(['run-of-nobody', lease.runId])).toEqual([
      { runId: 'run-of-nobody', found: 0, undecided: 0 },
      { runId: lease.runId, found: 2, undecided: 2 },
    ])
    await store.decideReconcileItem(lease.runId, 'event-1', 'reapplied', 'still wanted')
    expect(await store.decideReconcileItem(lease.runId, 'event-1', 'reapplied', 'again')).toMatchObject({ reason: 'still wanted' })
    expect(await store.reconcileItems(lease.runId, { id: 'event-1', limit: 5 })).toMatchObject([{ id: 'event-1', decision: 'reapplied' }])
    await expect(store.decideReconcileItem(lease.runId, 'event-1', 'dropped', 'no')).rejects.toMatchObject({ code: 'epoch-moved' })
    await store.decideReconcileItem(lease.runId, 'event-2', 'dropped', 'superseded')
    await store.endExile(source, 'all level')
    await store.endExile(source, 'all level')
    expect(await store.exiles(source)).toMatchObject([{ done: ['fenced', 'listed', 'level'], undecided: 0, endReason: 'all level' }])
    expect(await store.grantLease(source, 'agent-1', 1_000, 100)).toMatchObject({ generation: 2 })
    expect(await registered(source)).toHaveLength(1)
  })

  test('stands on a lease only while a run withholds it, it is over, and the region has said that it stops at the end', async () => {
    const { source, target } = pair()
    const records = await registered(source)
    const lease = await failover(records, target)
    const change = async () => await forcedChange(store, lease, records, { source, target, fence: 'lease-over' })
    await expect(store.commit(lease, { forced: await change() })).rejects.toMatchObject({ code: 'interlock-refused' })
    await store.leadAgents('agent-1', 60_000)
    await store.grantLease(source, 'agent-1', 300, 100)
    expect((await store.withholdLease(source, lease)).leftMs).toBeGreaterThan(0)
    const early = await change()
    const state = async () => (await store.leaseStates()).find(l => l.region === source)
    await vi.waitFor(async () => expect((await state())?.leftMs).toBeLessThanOrEqual(0), { timeout: 10_000 })
    await expect(store.commit(lease, { forced: early })).rejects.toMatchObject({ code: 'interlock-refused' })
    await store.noteLeaseStops(source, 'agent-2', true)
    expect(await state()).toMatchObject({ stops: false })
    await store.noteLeaseStops(source, 'agent-1', true)
    expect(await store.commit(lease, { forced: await change() })).toHaveLength(1)
    expect((await store.forcedFailovers({ source, limit: 1 }))[0]?.fence).toBe('lease-over')
  })

  test('stands on no lease that another server of the control plane granted last, which may live on and grant', async () => {
    const { source, target } = pair()
    const records = await registered(source)
    const lease = await failover(records, target)
    const change = async () => await forcedChange(store, lease, records, { source, target, fence: 'lease-over' })
    const state = async () => (await store.leaseStates()).find(l => l.region === source)
    const over = async () =>
      await forcedChecks(() => ({ engine: { controlPlane: store }, source }) as unknown as ForcedMove)['lease-over']?.(
        {} as Engine,
        null as never,
        null as never,
      )
    const admin = await fixture.raw('admin')
    const grantedBy = async (life: string) => {
      await admin.query(`update homeregion_control.region_lease set life = ${life} where region = $1`, [source])
    }
    await store.leadAgents('agent-1', 60_000)
    await store.grantLease(source, 'agent-1', 100, 100)
    await store.noteLeaseStops(source, 'agent-1', true)
    await store.withholdLease(source, lease)
    await vi.waitFor(async () => expect((await state())?.leftMs).toBeLessThanOrEqual(0), { timeout: 10_000 })
    const own = await (await fixture.raw('operator')).query<{ life: string }>('select homeregion_control.server_life() as life')
    expect(own.rows[0]?.life).toMatch(/^\d+\/0000000\d$/)
    for (const life of [`'${own.rows[0]?.life.replace(/.$/, '0')}'`, "''"]) {
      await grantedBy(life)
      expect(await state()).toMatchObject({ grantsKnown: false, stops: true })
      expect(await over()).toMatchObject({ verdict: 'unknown', observed: expect.stringContaining('is not the one that made') as unknown })
      await expect(store.commit(lease, { forced: await change() })).rejects.toMatchObject({ code: 'interlock-refused' })
    }
    await grantedBy('homeregion_control.server_life()')
    expect(await over()).toMatchObject({ verdict: 'pass' })
    expect(await store.commit(lease, { forced: await change() })).toHaveLength(1)
  })
})

describe('a lease', () => {
  test('that is withheld is never granted again, until its run lets go; one agent grants at a time', async () => {
    const { source, target } = pair()
    const records = await registered(source)
    expect(await store.leadAgents('agent-1', 60_000)).toBe(true)
    expect(await store.leadAgents('agent-2', 60_000)).toBe(false)
    await expect(store.grantLease(source, 'agent-2', 1_000, 100)).rejects.toMatchObject({ code: 'superseded' })
    expect(await store.grantLease(source, 'agent-1', 60_000, 100)).toMatchObject({ generation: 1 })
    const lease = await failover(records, target)
    const withheld = await store.withholdLease(source, lease)
    expect(withheld).toMatchObject({ generation: 1, withheldBy: lease.runId, durationMs: 60_000, marginMs: 100 })
    expect(await store.withholdLease(source, lease)).toMatchObject({ withheldBy: lease.runId })
    await expect(store.grantLease(source, 'agent-1', 60_000, 100)).rejects.toMatchObject({ code: 'lease-withheld' })
    const raw = await fixture.raw('operator')
    const grant = raw.query(`update homeregion_control.region_lease set over_at = over_at + interval '1 h' where region = $1`, [source])
    await expect(grant).rejects.toMatchObject({ code: 'HC010' })
    const shorten = raw.query(`update homeregion_control.region_lease set over_at = now() - interval '1 h' where region = $1`, [source])
    await expect(shorten).rejects.toMatchObject({ code: 'HC010' })
    await expect(store.releaseLease(source, null)).rejects.toMatchObject({ code: 'lease-withheld' })
    // Another failover of the region waits for the same end, and lets go of nothing that is not its own.
    const second = await failover(await registered(source), target)
    expect(await store.withholdLease(source, second)).toMatchObject({ withheldBy: lease.runId })
    await store.releaseLease(source, second)
    await expect(store.grantLease(source, 'agent-1', 60_000, 100)).rejects.toMatchObject({ code: 'lease-withheld' })
    await store.releaseLease(source, lease)
    await store.releaseLease(source, lease)
    expect(await store.grantLease(source, 'agent-1', 60_000, 100)).toMatchObject({ generation: 2 })
    // A control plane that was set back goes on above what the region knows, once it was compared with the others.
    await expect(store.grantLease(source, 'agent-1', 60_000, 100, 87)).rejects.toMatchObject({ code: 'control-plane-behind' })
    await expect(store.grantLease('source-new', 'agent-1', 60_000, 100, 1)).rejects.toMatchObject({ code: 'control-plane-behind' })
    expect(await store.grantLease(source, 'agent-1', 60_000, 100, 87, true)).toMatchObject({ generation: 88 })
    expect(await store.grantLease(source, 'agent-1', 60_000, 100, 88)).toMatchObject({ generation: 89 })
    const transfer = await store.openRun(planFor(await registered(source), target), HOLDER, null)
    await expect(store.withholdLease(source, transfer)).rejects.toMatchObject({ code: 'interlock-refused' })
    await expect(store.withholdLease(source, { ...lease, token: 1 })).rejects.toMatchObject({ code: 'superseded' })
    expect(await store.leadAgents('agent-1', 0)).toBe(true)
    expect(await store.leadAgents('agent-2', 60_000)).toBe(true)
    await expect(store.grantLease(source, 'agent-1', 1_000, 100)).rejects.toMatchObject({ code: 'superseded' })
    await store.leadAgents('agent-2', 0)
  })
})

test('a replica that takes over knows of no grant that its primary makes from then on, until it grants itself', async () => {
  const { source } = pair()
  const replica = await startStandby(fixture.server, { name: 'replica' })
  try {
    const { operator, admin } = fixture.config.controlPlane
    const url = operator.url.replace(/:\d+\//, `:${replica.server.port}/`)
    const there = fixture.store({ controlPlane: { operator: { ...operator, url }, admin } })
    const known = async (at: ControlPlane) => (await at.leaseStates()).find(l => l.region === source)?.grantsKnown
    await store.leadAgents('agent-1', 60_000)
    await store.grantLease(source, 'agent-1', 60_000, 100)
    await vi.waitFor(async () => expect(await known(there)).toBe(false), { timeout: 10_000 })
    await replica.promote()
    expect([await known(store), await known(there)]).toEqual([true, false])
    // It may have forgotten what came after the last grant: the regions are compared first.
    const early = there.grantLease(source, 'agent-1', 60_000, 100, 1)
    await expect(early).rejects.toMatchObject({ code: 'control-plane-behind', fields: { lost: false } })
    expect(await there.grantLease(source, 'agent-1', 60_000, 100, 1, true)).toMatchObject({ generation: 2 })
    expect(await known(there)).toBe(true)
  } finally {
    await replica.stop()
    await store.leadAgents('agent-1', 0)
  }
})

describe('an acknowledgement token', () => {
  test('works once, in its time, for its plan, keys and bound', async () => {
    const { source, target } = pair()
    const records = await registered(source)
    const plan = failoverPlan(records, target)
    const lease = await store.openRun(plan, HOLDER, null, { seize: true })
    const about = { planId: plan.id, keysSha256: hashOfKeys(records.map(r => r.key)), estimateSha256: 'shown', boundMs: 30_000 }
    type Token = Extract<Acknowledgement, { kind: 'token' }>
    const found = async (token: string) => {
      const read = await store.ackToken(token)
      if (read === null) throw new Error('not issued')
      return read
    }
    const tokenFor = async (change: object, by = store): Promise<Token> => {
      const { hash } = await found(await by.issueAckToken({ ...about, ...change }))
      return { kind: 'token', hash, boundMs: 30_000, keysSha256: about.keysSha256 }
    }
    const force = async (acknowledgement: Acknowledgement) =>
      await store.commit(lease, { forced: await forcedChange(store, lease, records, { source, target, acknowledgement }) })
    const use = async (token: Token) => {
      await store.redeemAckToken(lease, token.hash)
      return await force(token)
    }
    const brief = fixture.store({ policy: { ...fixture.config.policy, ackTokenMs: 0 } })
    const bad = [
      await tokenFor({ planId: 'another' }),
      await tokenFor({ keysSha256: 'others' }),
      await tokenFor({ boundMs: 20_000 }),
      await tokenFor({}, brief),
      { ...(await tokenFor({})), hash: 'never-issued' },
      // Somebody else's.
      await tokenFor({}, fixture.as(BOB)),
    ]
    for (const token of bad) await expect(use(token)).rejects.toMatchObject({ code: 'ack-token-refused', exit: 'rpo' })
    // In time, for this plan and these keys, and never used by the run.
    await expect(force(await tokenFor({}))).rejects.toMatchObject({ code: 'ack-token-refused', exit: 'rpo' })
    await expect(force({ kind: 'bound', boundMs: 10_000 })).rejects.toMatchObject({ code: 'loss-not-acknowledged', exit: 'rpo' })
    const secret = await store.issueAckToken(about)
    const good: Token = { ...(await tokenFor({})), hash: (await found(secret)).hash }
    expect(await found(secret)).toMatchObject({ ...about, usedBy: null, issuedTo: 'homeregion_operator', mine: true })
    expect(await fixture.as(BOB).ackToken(secret)).toMatchObject({ mine: false })
    // Of two runs the first has it, also while neither has committed; and it gets no older for the first.
    const second = await store.openRun({ ...plan, moves: failoverPlan(await registered(source), target).moves }, HOLDER, null)
    await store.redeemAckToken(lease, good.hash)
    await store.redeemAckToken(lease, good.hash)
    await expect(store.redeemAckToken(second, good.hash)).rejects.toMatchObject({ code: 'ack-token-refused' })
    expect(await store.ackTokenOf(second.runId)).toBeNull()
    const raw = await fixture.raw('admin')
    await raw.query('begin')
    await raw.query(`set local session_replication_role = replica`)
    for (const table of ['ack_token', 'redeemed_token'])
      await raw.query(`update homeregion_control.${table} set expires_at = now() where hash = $1`, [good.hash])
    await raw.query('commit')
    expect(await store.ackTokenOf(lease.runId)).toMatchObject({ hash: good.hash, usedBy: lease.runId })
    expect(await force(good)).toHaveLength(1)
    expect(await store.ackToken('ack-none')).toBeNull()
    const again = raw.query(
      `insert into homeregion_control.acknowledgement (id, run_id, plan_id, kind, bound_ms, keys_sha256, token_hash, token_expires_at, token_used_at)
      select gen_random_uuid(), run_id, plan_id, kind, bound_ms, keys_sha256, token_hash, token_expires_at, token_used_at
      from homeregion_control.acknowledgement where token_hash is not null`,
    )
    await expect(again).rejects.toMatchObject({ constraint: 'acknowledgement_token_once' })
    expect(JSON.stringify((await raw.query('select * from homeregion_control.ack_token, homeregion_control.audit')).rows)).not.toContain(
      secret,
    )
  })
})

describe('an approval', () => {
  test('is a login that is listed and did not begin the run; a rejection stands; breaking the glass is loud', async () => {
    const { source, target } = pair()
    const records = await registered(source)
    const lease = await failover(records, target)
    const force = async () =>
      await store.commit(lease, {
        forced: await forcedChange(store, lease, records, { source, target, fence: 'source-attested', approved: true }),
      })
    await expect(force()).rejects.toMatchObject({ code: 'approval-refused' })
    await expect(store.approve(lease.runId, 'approved', 'me', false)).rejects.toMatchObject({ code: 'approval-refused' })
    expect(await store.approvalPolicy(lease.runId)).toMatchObject({ approvers: [BOB], needed: 1, starter: 'homeregion_operator' })
    expect(await fixture.as(EVE).approvalPolicy(null)).toMatchObject({ aboveKeys: 100_000, starter: EVE })
    await expect(fixture.as(EVE).approve(lease.runId, 'approved', 'me too', false)).rejects.toMatchObject({ code: 'approval-refused' })
    await expect(fixture.as(BOB).approve('run-none', 'approved', 'x', false)).rejects.toMatchObject({ code: 'unknown-run' })
    const bob = fixture.as(BOB)
    expect(await bob.approve(lease.runId, 'approved', 'seen it', false)).toMatchObject({
      approver: BOB,
      breakGlass: false,
      saidBefore: false,
    })
    expect(await bob.approve(lease.runId, 'approved', 'lost answer', false)).toMatchObject({ reason: 'seen it', saidBefore: true })
    const turned = { code: 'approval-refused', text: { next: expect.stringContaining(`homeregion abort ${lease.runId}`) as unknown } }
    await expect(bob.approve(lease.runId, 'rejected', 'no', false)).rejects.toMatchObject(turned)
    expect((await store.approvals(lease.runId)).map(a => a.approver)).toEqual([BOB])
    expect(await force()).toHaveLength(1)

    const next = await registered(pair().source)
    const alone = await failover(next, target)
    await expect(store.approve(alone.runId, 'approved', '', true)).rejects.toMatchObject({ code: 'approval-refused' })
    expect(await store.approve(alone.runId, 'approved', 'nobody else is awake', true)).toMatchObject({ byStarter: true })
    expect((await store.audit(1))[0]).toMatchObject({ event: 'BREAK-GLASS', actor: 'homeregion_operator' })
    await bob.approve(alone.runId, 'rejected', 'wait for me', false)
    await expect(fixture.as(EVE).approve(alone.runId, 'approved', 'no wait', true)).rejects.toMatchObject({
      ...{ code: 'approval-refused', exit: 'notAllowed' },
      message: expect.stringMatching(/was rejected by bob_approves .*\(wait for me\)/) as unknown,
    })
    const change = await forcedChange(store, alone, next, { source: next[0]?.homeRegion ?? '', target, approved: true })
    await expect(store.commit(alone, { forced: change })).rejects.toMatchObject({ code: 'approval-refused' })
  })
})

test('looks and contacts are kept by observer, ages grow by the control plane’s clock, and a late report replaces nothing', async () => {
  const look = {
    region: 'seen',
    unpublished: 3,
    oldestUnpublishedMs: 400,
    notApplied: { x: { events: 1, oldestMs: 5 } },
    highestPerSecond: 9.5,
  }
  const report = {
    observer: 'agent-1',
    takenAgoMs: 1_000,
    observations: [look],
    contacts: [{ region: 'seen', what: 'kafka', reached: true }],
  } as const
  await store.recordObservation(report)
  await store.recordObservation({ ...report, takenAgoMs: 60_000, observations: [{ ...look, unpublished: 99 }] })
  await store.recordObservation({
    ...report,
    takenAgoMs: 0,
    observations: [],
    contacts: [
      { region: 'seen', what: 'kafka', reached: false },
      { region: 'seen', what: 'lease', reached: false },
    ],
  })
  const [seen] = (await store.observations()).filter(o => o.region === 'seen')
  expect(seen).toMatchObject({ ...look, observer: 'agent-1' })
  expect(seen?.ageMs).toBeGreaterThanOrEqual(1_000)
  expect(seen?.ageMs).toBeLessThan(60_000)
  const sights = (await store.sights()).filter(s => s.region === 'seen')
  expect(sights.map(s => [s.what, s.lastContactAgeMs === null])).toEqual([
    ['kafka', false],
    ['lease', true],
  ])
})

test('the last drill of each pair of regions is kept', async () => {
  const drill = { id: randomUUID(), source: 'a', target: 'b', keys: 2, outcome: 'passed', recoveryMs: 900, objectiveMs: 5_000 } as const
  const rest = { duplicates: 0, gaps: 0, tookMs: 4_000, detail: null }
  await store.recordDrill({ ...drill, ...rest })
  await store.recordDrill({ ...drill, ...rest })
  await store.recordDrill({ ...drill, ...rest, id: randomUUID(), outcome: 'failed', recoveryMs: null })
  expect(await store.lastDrills()).toMatchObject([{ source: 'a', target: 'b', outcome: 'failed', recoveryMs: null }])
})

test('a drill that did not end is known by where its keys are and who brought them there, however it ended', async () => {
  const { source, target } = pair()
  const [a, b] = await registered(source, 2)
  if (a === undefined || b === undefined) throw new Error('two keys')
  const begun = { id: randomUUID(), home: source, target, keys: [a.key, b.key], holder: HOLDER }
  const mine = async () => (await store.unfinishedDrills()).filter(d => d.id === begun.id)
  await store.beginDrill(begun)
  await store.beginDrill(begun)
  expect(await mine()).toEqual([])
  const lease = await store.openRun(planFor([a, b], target), HOLDER, 'drill: 2 canary keys')
  expect(await mine()).toMatchObject([{ ...begun, away: [], openRun: lease.runId }])
  await store.commit(lease, {
    keyOutcomes: [a, b].map(({ key }) => ({ key, outcome: 'not-moved' as const })),
    runState: 'ABORTED',
  })
  expect(await mine()).toEqual([])
  const away = await moveKey(store, a, target, 'drill: 1 canary key')
  await moveKey(store, b, target, 'asked for by a person')
  expect(await mine()).toMatchObject([{ away: [a.key], openRun: null }])
  // A result that says that they are not back leaves it unfinished; one that gave way leaves them where they were asked for.
  const result = { id: begun.id, source, target, keys: 2, recoveryMs: 1, objectiveMs: 1, duplicates: 0, gaps: 0, tookMs: 1 }
  await store.recordDrill({ ...result, outcome: 'failed', detail: { returned: false } })
  expect(await mine()).toHaveLength(1)
  const other = { ...begun, id: randomUUID() }
  await store.beginDrill(other)
  await store.recordDrill({ ...result, id: other.id, outcome: 'pre-empted', detail: { returned: null } })
  expect((await store.unfinishedDrills()).some(d => d.id === other.id)).toBe(false)
  const home = await moveKey(store, away, source, 'drill: home again')
  expect(await mine()).toEqual([])
  // What a newer drill does with the key is that one's business.
  const newer = { ...begun, id: randomUUID(), keys: [a.key] }
  await store.beginDrill(newer)
  await moveKey(store, home, target, 'drill: once more')
  expect((await store.unfinishedDrills()).filter(d => d.keys.includes(a.key)).map(d => d.id)).toEqual([newer.id])
})

test('10,000 keys are handed over in one commit', async () => {
  const { source, target } = pair()
  const records = await registered(source, 10_000)
  const lease = await failover(records, target)
  const change = await forcedChange(store, lease, records, { source, target })
  const began = performance.now()
  const moved = await store.commit(lease, { forced: change })
  console.info(`10,000 keys: ${Math.round(performance.now() - began)} ms`)
  expect(moved).toHaveLength(10_000)
  expect(moved.every(r => r.homeRegion === target && r.epoch === 2 && r.state === 'ACTIVE')).toBe(true)
  expect(await store.auditBreak()).toBeNull()
}, 90_000)
