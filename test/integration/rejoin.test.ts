import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../sandbox/postgres.ts'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import { followedRunbook, type RunbookFlags } from '../../src/cli/rejoin/pinned-runbook.ts'
import { HomeregionError } from '../../src/domain/errors.ts'
import type { ReconcileItem } from '../../src/domain/failover.ts'
import { failoverOf, lookAgain } from '../../src/engine/reconcile.ts'
import { rejoin } from '../../src/engine/rejoin.ts'
import { eventually } from '../e2e/scene.ts'
import { temporaryFolder } from '../unit/temporary-folder.ts'
import { type RejoinFixture, type Side, startRejoinFixture } from './rejoin-fixture.ts'
import { type StandbyFixture, startStandby } from './standby-fixture.ts'

let f: RejoinFixture

beforeAll(async () => {
  f = await startRejoinFixture()
})
afterAll(async () => {
  await f?.stop()
})

/** A test that failed leaves the next one no region in exile. */
afterEach(async () => {
  const [exile] = await f.store.exiles('region-a')
  if (exile === undefined || exile.endedAt !== null) return
  const back = await rejoin(f.parts(), 'region-a', 'after a test').then(
    () => true,
    () => false,
  )
  for (const run of exile.runIds) await decideAll(run)
  if (!back) await rejoin(f.parts(), 'region-a', 'after a test')
})

async function items(run: string): Promise<readonly ReconcileItem[]> {
  return await f.store.reconcileItems(run, { limit: 1_000 })
}

async function decideAll(run: string): Promise<void> {
  for (const item of await items(run))
    if (item.decision === null) await f.store.decideReconcileItem(run, item.id, 'dropped', 'it was a test')
}

async function accounts(side: Side, key: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const { rows } = await (await f.admin(side)).query<Record<string, unknown>>(
    `select account_id, version::int, billing_address, updated_at::text from account where tenant_id = $1 order by 1`,
    [key],
  )
  return rows
}

describe('a region that was failed over and answers again', () => {
  test('is fenced first, keeps out until each lost write is decided, is brought level, and may own again', async () => {
    await f.register(['one', 'two'])
    for (const key of ['one', 'two']) {
      await f.write(key, 'region-a')
      await f.deliver('region-a', key)
    }
    const lost = await f.write('one', 'region-a')
    const run = await f.force(['one', 'two'])
    // Nobody has told region-a yet: its clients go on.
    const diverged = await f.write('one', 'region-a', 'account-1')
    await f.write('one', 'region-b')
    await f.write('two', 'region-b')

    const first = f.parts()
    await expect(rejoin(first, 'region-a', 'it answers')).rejects.toMatchObject({ code: 'check-refused', text: { fact: /^2 writes/ } })
    await expect(f.write('one', 'region-a')).rejects.toThrow(/HR00/)
    const found = await items(run)
    expect(found.map(i => [i.key, i.kind])).toEqual([
      ['one', 'event'],
      ['one', 'event'],
    ])
    expect(JSON.stringify(found.map(i => i.content))).toContain(lost)
    expect(JSON.stringify(found.map(i => i.content))).toContain(diverged)
    expect(await f.store.exiles('region-a')).toMatchObject([{ done: ['fenced', 'listed'], undecided: 2, endedAt: null }])

    // A home that hangs is found by one short call, and what stands is said.
    const silent = f.parts()
    const deaf = new HomeregionError('region-unreachable', { fact: 'region-b database did not answer', next: 'homeregion doctor' })
    const region = (name: string) =>
      name === 'region-b' ? { ...silent.region(name), conditions: () => Promise.reject(deaf) } : silent.region(name)
    await expect(rejoin({ ...silent, region }, 'region-a', 'it answers')).rejects.toMatchObject({
      code: 'region-unreachable',
      text: { fact: 'step list: region-b database did not answer', state: expect.stringContaining('region-a stays in exile') as string },
    })

    await decideAll(run)
    const second = f.parts()
    await rejoin(second, 'region-a', 'it answers')
    expect(first.told).toContain('2 writes that only one side has on the list, 2 undecided')
    expect(second.told).toContain('2 writes that only one side has on the list, all decided')
    expect(second.told.at(-1)).toBe('region-a is back: it may own keys again')
    expect(await accounts('region-a', 'one')).toEqual(await accounts('region-b', 'one'))
    expect(await accounts('region-a', 'two')).toEqual(await accounts('region-b', 'two'))
    expect(await f.store.exiles('region-a')).toMatchObject([{ done: ['fenced', 'listed', 'level'], undecided: 0, endReason: 'it answers' }])
    expect((await f.fence('region-a').status()).state).toBe('lifted')
    await expect(f.write('one', 'region-a')).rejects.toThrow(/HR001/)
    // What the rows stand for already does not apply twice, and what comes next does.
    await f.write('one', 'region-b')
    expect(await f.deliver('region-b', 'one')).toEqual(['applied'])
    await expect(rejoin(f.parts(), 'region-a', 'again')).rejects.toMatchObject({ code: 'check-refused' })
  })

  test('whose outbox was trimmed: rows tell what was lost, and what the new home wrote since is none of it', async () => {
    await f.register(['trimmed'])
    await f.write('trimmed', 'region-a', 'same')
    await f.write('trimmed', 'region-a', 'overtaken')
    await f.write('trimmed', 'region-a', 'past')
    await f.deliver('region-a', 'trimmed')
    await f.write('trimmed', 'region-a', 'ahead')
    await f.write('trimmed', 'region-a', 'overtaken')
    const run = await f.force(['trimmed'])
    for (const account of ['overtaken', 'overtaken', 'past']) await f.write('trimmed', 'region-b', account)
    const a = await f.admin('region-a')
    // Nothing leaves any more, and its relay purges: the outbox says nothing.
    await a.query(`set session_replication_role = replica; update outbox set published_at = clock_timestamp() where tenant_id = 'trimmed';
      delete from outbox where tenant_id = 'trimmed'; reset session_replication_role`)
    await a.query(`insert into invoice (tenant_id, invoice_id, account_id, amount_cents) values ('trimmed', 'i', 'same', 1)`)
    await expect(rejoin(f.parts(), 'region-a', 'it answers')).rejects.toMatchObject({ code: 'check-refused' })
    const found = await items(run)
    const rows = found.filter(i => i.kind === 'row').map(i => i.subject.replace(/:.*/, ''))
    expect(rows.toSorted()).toEqual([
      'public.account ["trimmed", "ahead"], version 1',
      'public.account ["trimmed", "overtaken"], version 2',
      'public.invoice ["trimmed", "i"]',
    ])
    const overtaken = found.find(i => i.subject.includes('overtaken'))
    expect(overtaken?.content).toMatchObject({ row: { version: 2 }, atHome: { version: 3 } })
    expect(found.filter(i => i.kind === 'idempotency')).toHaveLength(2)
    expect(found.filter(i => i.kind === 'phantom')).toEqual([])
    await decideAll(run)
    await rejoin(f.parts(), 'region-a', 'it answers')
    expect(await accounts('region-a', 'trimmed')).toEqual(await accounts('region-b', 'trimmed'))
    expect((await (await f.admin('region-a')).query(`select from invoice where tenant_id = 'trimmed'`)).rowCount).toBe(0)
  })

  test('whose database was set back: what the new home has applied of it is listed as lost there, and is not lost', async () => {
    await f.register(['phantom', 'phantom-all'])
    for (const key of ['phantom', 'phantom-all']) await f.write(key, 'region-a', 'kept')
    for (const key of ['phantom', 'phantom-all']) await f.deliver('region-a', key)
    await f.write('phantom', 'region-a', 'kept')
    await f.write('phantom', 'region-a', 'new')
    await f.deliver('region-a', 'phantom')
    const run = await f.force(['phantom', 'phantom-all'])
    // As an earlier copy of the data directory has it: the newest rows and events are gone.
    await unguarded(`delete from outbox where tenant_id = 'phantom' and (aggregate_id = 'new' or aggregate_version = 2);
      delete from account where tenant_id = 'phantom' and account_id = 'new';
      update account set version = 1 where tenant_id = 'phantom'; delete from idempotency where tenant_id = 'phantom';
      update outbox set published_at = clock_timestamp() where tenant_id = 'phantom-all'; delete from outbox where tenant_id = 'phantom-all';
      delete from account where tenant_id = 'phantom-all'`)
    await expect(rejoin(f.parts(), 'region-a', 'it was set back')).rejects.toMatchObject({ code: 'check-refused' })
    expect((await items(run)).map(i => [i.key, i.kind])).toEqual([
      ['phantom', 'phantom'],
      ['phantom', 'phantom'],
      ['phantom-all', 'phantom'],
    ])
    await decideAll(run)
    await rejoin(f.parts(), 'region-a', 'it was set back')
    for (const key of ['phantom', 'phantom-all']) expect(await accounts('region-a', key)).toEqual(await accounts('region-b', key))
  })

  test('goes on wherever the command was killed, and finds nothing twice, whatever the new home writes meanwhile', async () => {
    await f.register(['killed'])
    await f.write('killed', 'region-a')
    await f.deliver('region-a', 'killed')
    const run = await f.force(['killed'])
    await f.write('killed', 'region-a')
    await f.write('killed', 'region-b')
    const writer = await f.regions['region-b'].login('app_writer')
    await writer.query(`insert into invoice (tenant_id, invoice_id, account_id, amount_cents) values ('killed', 'i', 'account-0', 1)`)
    const points = ['rejoin:fenced', 'rejoin:followed', 'rejoin:found', 'rejoin:listed', 'rejoin:levelled', 'rejoin:level', 'rejoin:lifted']
    for (const point of points) {
      if (point === 'rejoin:levelled') await decideAll(run)
      const fault = async (name: string) => {
        if (name === point) throw new Error(`killed at ${name}`)
        await Promise.resolve()
      }
      await expect(rejoin(f.parts({ fault }), 'region-a', 'it answers')).rejects.toThrow(`killed at ${point}`)
      if (point !== 'rejoin:lifted') expect((await f.fence('region-a').status()).state).toBe('applied')
      await expect(f.write('killed', 'region-a')).rejects.toThrow(/HR00/)
      await f.write('killed', 'region-b')
      await writer.query(`update invoice set amount_cents = amount_cents + 1 where tenant_id = 'killed'`)
      // The stream is there already, and has carried some of it.
      if (point === 'rejoin:level') await f.deliver('region-b', 'killed', 1)
    }
    await rejoin(f.parts(), 'region-a', 'it answers')
    expect(await items(run)).toHaveLength(1)
    await f.deliver('region-b', 'killed')
    // What the stream carries has the time of its arrival.
    const written = async (side: Side) => (await accounts(side, 'killed')).map(row => ({ ...row, updated_at: null }))
    expect(await written('region-a')).toEqual(await written('region-b'))
  })

  test('tables without versions: what it changed, added or deleted itself is listed, what the new home wrote is not, and each value is the same text', async () => {
    await f.register(['plain'])
    const [a, b] = [await f.admin('region-a'), await f.admin('region-b')]
    const invoice = `insert into invoice (tenant_id, invoice_id, account_id, amount_cents, note, rate)
      select 'plain', i, 'acc', 1, '{"a": 1,"a":2}', '-0' from unnest($1::text[]) as i`
    for (const side of [a, b]) {
      await side.query('alter table invoice add column note json, add column rate float8')
      if (side === b) await side.query('set session_replication_role = replica')
      await side.query(invoice, [['same', 'spaced', 'deleted']])
      await side.query('reset session_replication_role')
    }
    const run = await f.force(['plain'])
    await b.query(invoice, [['new']])
    // Nobody has told region-a yet. As JSON the two would be equal.
    await a.query(`update invoice set note = '{"a":1, "a":2}' where invoice_id = 'spaced'`)
    await a.query(`delete from invoice where invoice_id = 'deleted'`)
    await a.query(invoice, [['added']])
    // A guard that is not what it should be is no fence, and what mends it is named.
    await a.query('alter table invoice disable trigger zzz_homeregion_truncate')
    await expect(rejoin(f.parts(), 'region-a', 'it answers')).rejects.toMatchObject({
      code: 'fence-open',
      text: { next: 'homeregion init' },
    })
    await a.query('alter table invoice enable always trigger zzz_homeregion_truncate')
    await expect(rejoin(f.parts(), 'region-a', 'it answers')).rejects.toMatchObject({ code: 'check-refused' })
    const found = await items(run)
    expect(found.map(i => i.subject).toSorted()).toEqual([
      'public.invoice ["plain", "added"]: not at the new home',
      'public.invoice ["plain", "deleted"]: deleted at the old home, still at the new one',
      'public.invoice ["plain", "spaced"]: different at the new home',
    ])
    expect(found.find(i => i.subject.includes('added'))?.content).toMatchObject({
      row: { 'homeregion.text': expect.stringContaining('{"a": 1,"a":2}') as unknown },
    })
    await decideAll(run)
    await rejoin(f.parts(), 'region-a', 'it answers')
    const rows = async (side: typeof a) =>
      (await side.query<{ t: string }>(`select t::text from invoice t where tenant_id = 'plain' order by 1`)).rows
    expect(await rows(a)).toEqual(await rows(b))
    expect(JSON.stringify(await rows(a))).toMatch(/spaced.*-0/)
    for (const side of [a, b]) await side.query('alter table invoice drop column note, drop column rate')
  })

  test('a row that appears between the list and the end is listed too, and replaced only when it was decided about', async () => {
    await f.register(['slipped'])
    await f.write('slipped', 'region-a')
    await f.deliver('region-a', 'slipped')
    const run = await f.force(['slipped'])
    const a = await f.admin('region-a')
    // As a copy: a superuser can, and no fence of ours holds him.
    const slip = async (account: string) => {
      await a.query('set session_replication_role = replica')
      await a.query(`insert into account (tenant_id, account_id, version, billing_address) values ('slipped', $1, 1, 'by hand')`, [account])
      await a.query('reset session_replication_role')
    }
    const slipped = async () => (await items(run)).filter(i => i.decision === null).map(i => [i.kind, i.subject.replace(/:.*/, '')])
    for (const point of ['listed', 'level']) {
      const parts = f.parts({ fault: async name => (name === `rejoin:${point}` ? await slip(point) : undefined) })
      await expect(rejoin(parts, 'region-a', 'it answers')).rejects.toMatchObject({ code: 'check-refused', text: { fact: /^1 write / } })
      expect(await slipped()).toEqual([['row', `public.account ["slipped", "${point}"], version 1`]])
      expect(JSON.stringify(await accounts('region-a', 'slipped'))).toContain(point)
      expect((await f.store.exiles('region-a'))[0]?.done).toEqual(['fenced', 'listed'])
      expect((await f.fence('region-a').status()).state).toBe('applied')
      await decideAll(run)
    }
    await rejoin(f.parts(), 'region-a', 'it answers')
    expect(await accounts('region-a', 'slipped')).toEqual(await accounts('region-b', 'slipped'))
  })

  test('along a runbook of its operators: pinned, their steps done once, and one that dies before its record done again under the same name', async () => {
    await f.register(['pinned'])
    await f.write('pinned', 'region-a')
    await f.deliver('region-a', 'pinned')
    await f.force(['pinned'])
    const dir = temporaryFolder()
    const [file, log] = [join(dir, 'own.yaml'), join(dir, 'log')]
    const shipped = readFileSync(packageFile('runbooks', 'rejoin.yaml'), 'utf8')
    const own = (id: string) => `  - id: ${id}
    title: Warm the cache
    confirm: plain
    action: { exec: { command: [sh, -c, 'echo "$HOMEREGION_STEP $HOMEREGION_REGION $HOMEREGION_EXILE" >> "$0"', ${log}] } }
`
    const written = (id: string) => {
      writeFileSync(file, shipped.replace('  - id: lift\n', `${own(id)}  - id: lift\n`))
    }
    const follow = async (flags: RunbookFlags) => {
      const { runbook, done } = await followedRunbook(f.store, 'region-a', flags, dir)
      return f.parts({ runbook, done, fault: async name => (died(name) ? await Promise.reject(new Error('died')) : undefined) })
    }
    let died: (name: string) => boolean = name => name === 'rejoin:authored'
    written('warm')
    await expect(rejoin(await follow({ runbook: file }), 'region-a', 'it answers')).rejects.toThrow('died')
    died = name => name === 'rejoin:lifted'
    await expect(rejoin(await follow({}), 'region-a', 'it answers')).rejects.toThrow('died')
    const [exile] = await f.store.exiles('region-a')
    const line = `warm region-a ${exile?.id ?? ''}`
    expect(readFileSync(log, 'utf8').trim().split('\n')).toEqual([line, line])
    // Whatever becomes of the file, the return goes on as it was begun.
    written('other')
    await expect(follow({ runbook: file })).rejects.toMatchObject({ code: 'plan-stale', exit: 'conflict' })
    await expect(follow({ runbook: 'transfer' })).rejects.toMatchObject({ code: 'usage' })
    await expect(rejoin(await follow({}), 'region-a', 'it answers')).rejects.toThrow('died')
    expect(readFileSync(log, 'utf8').trim().split('\n')).toEqual([line, line])
    died = () => false
    const declined = { ...(await follow({ runbook: file, replaceRunbook: true })), confirm: () => Promise.resolve(false) }
    await expect(rejoin(declined, 'region-a', 'it answers')).rejects.toMatchObject({ code: 'declined' })
    expect((await f.fence('region-a').status()).state).toBe('applied')
    await rejoin(await follow({}), 'region-a', 'it answers')
    expect(readFileSync(log, 'utf8').trim().split('\n')).toEqual([line, line, line.replace('warm', 'other')])
    expect((await f.store.audit(50)).filter(e => e.event.startsWith('rejoin-')).map(e => e.event)).toEqual([
      ...['rejoin-step', 'rejoin-runbook', 'rejoin-step', 'rejoin-runbook'],
    ])
    await expect(follow({})).rejects.toMatchObject({ code: 'check-refused' })
  })

  test('late events that reached the new home are on the list, and one decision closes both', async () => {
    await f.register(['late'])
    await f.write('late', 'region-a')
    await f.deliver('region-a', 'late')
    await f.write('late', 'region-a')
    const run = await f.force(['late'])
    await f.write('late', 'region-b')
    expect(await f.deliver('region-a', 'late')).toEqual(['quarantined'])
    await expect(rejoin(f.parts(), 'region-a', 'it answers')).rejects.toMatchObject({ code: 'check-refused' })
    expect((await items(run)).map(i => i.kind)).toEqual(['event'])
    await decideAll(run)
    await rejoin(f.parts(), 'region-a', 'it answers')
    expect(await f.database('region-b').quarantined({ key: 'late', limit: 10 })).toMatchObject([
      { decided: { runId: run, decision: 'drop', reason: 'it was a test' } },
    ])
  })

  test('late events that reach the new home when the region is back are on the list all the same, and what was decided holds for them', async () => {
    await f.register(['later'])
    await f.write('later', 'region-a')
    await f.deliver('region-a', 'later')
    await f.write('later', 'region-a')
    const run = await f.force(['later'])
    await expect(rejoin(f.parts(), 'region-a', 'it answers')).rejects.toMatchObject({ code: 'check-refused' })
    await decideAll(run)
    await rejoin(f.parts(), 'region-a', 'it answers')
    // One was decided while it was in the outbox alone; of the other nobody but the stream knew.
    expect(await f.deliver('region-a', 'later')).toEqual(['quarantined'])
    await (await f.admin('region-b')).query(
      `insert into homeregion.quarantine (event_id, key, owner_epoch, current_epoch, source_region, event_type, envelope) values ('stray', 'later', 1, 2, 'region-a', 'x', '{}')`,
    )
    expect(await f.database('region-b').quarantineCount()).toMatchObject({ undecided: 2 })
    const parts = { controlPlane: f.store, region: (name: string) => f.database(name as Side), recovery: f.recovery, reapply: null }
    const look = async () => await lookAgain({ ...parts, fault: () => Promise.resolve() }, await failoverOf(f.store, run))
    expect(await look()).toBeNull()
    expect((await items(run)).filter(i => i.decision === null)).toMatchObject([{ id: 'event-stray', kind: 'event' }])
    expect(await f.database('region-b').quarantineCount()).toMatchObject({ undecided: 1 })
    await decideAll(run)
    await look()
    expect(await f.database('region-b').quarantineCount()).toMatchObject({ undecided: 0 })
  })

  test('a writer that is in the middle of its transaction is named, and nothing is listed before it has ended', async () => {
    await f.register(['open'])
    await f.force(['open'])
    const writer = await f.regions['region-a'].login('app_writer')
    await writer.query('begin')
    await writer.query(`insert into account (tenant_id, account_id, version, billing_address) values ('open', 'a', 1, 'x')`)
    await expect(rejoin(f.parts(), 'region-a', 'it answers')).rejects.toMatchObject({
      text: { fact: expect.stringMatching(/app_writer/) as string },
    })
    expect((await f.store.exiles('region-a'))[0]).toMatchObject({ done: [], endedAt: null })
    await writer.query('rollback')
    await rejoin(f.parts(), 'region-a', 'it answers')
  })

  test('stays fenced while another region has a key of it under an epoch that the control plane has forgotten', async () => {
    await f.register(['taken', 'forgotten'])
    await f.force(['taken'])
    await f.database('region-b').openMany([{ key: 'forgotten', epoch: 2 }], 1)
    await expect(rejoin(f.parts(), 'region-a', 'it answers')).rejects.toMatchObject({
      code: 'lift-refused',
      text: {
        fact: expect.stringContaining(
          'region-b has forgotten at home in region-b under epoch 2, the control plane in region-a under epoch 1',
        ) as string,
      },
    })
    await expect(f.write('forgotten', 'region-a')).rejects.toThrow(/HR009/)
    // Its newest state is back, and knows of the move.
    await f.force(['forgotten'])
    await rejoin(f.parts(), 'region-a', 'it answers')
    await expect(f.write('forgotten', 'region-a')).rejects.toThrow(/HR001/)
  })

  test('comes back where a third region is dark, and that nothing is known of it is said', async () => {
    await f.register(['third', 'own'])
    await f.force(['third'])
    const dark = { ...f.database('region-b'), region: 'region-c', aheadOf: () => Promise.reject(new Error('dark')) }
    const known = f.parts()
    const parts = f.parts({ others: [...known.others, 'region-c'], region: name => (name === 'region-c' ? dark : known.region(name)) })
    await rejoin(parts, 'region-a', 'it answers')
    expect(parts.told.some(line => line.endsWith('; nothing is known of region-c'))).toBe(true)
  })

  test('with a thousand keys is level in seconds', async () => {
    const keys = Array.from({ length: 1_000 }, (_, i) => `many-${String(i).padStart(4, '0')}`)
    await f.register(keys)
    const fill = `insert into account (tenant_id, account_id, version, billing_address)
      select k, a::text, 1, 'x' from unnest($1::text[]) k, generate_series(1, 5) a`
    await (await f.regions['region-a'].login('app_writer')).query(fill, [keys])
    const b = await f.admin('region-b')
    await b.query('set session_replication_role = replica')
    await b.query(fill, [keys])
    await b.query('reset session_replication_role')
    await f.force(keys)
    await (await f.regions['region-b'].login('app_writer')).query(`
      with changed as (update account set version = version + 1 where tenant_id like 'many-%' returning *)
      insert into outbox (event_id, tenant_id, aggregate_type, aggregate_id, event_type, source_region, home_region, owner_epoch, aggregate_version, occurred_at)
      select gen_random_uuid(), tenant_id, 'account', account_id, 'x', 'region-b', 'region-b', 2, version, clock_timestamp() from changed`)
    const told = f.parts()
    const levelling = performance.now()
    await rejoin(told, 'region-a', 'it answers')
    expect(told.told).toContain('1000 keys are level: 5000 rows, the digests of both sides equal')
    const [known] = (
      await (await f.admin('region-a')).query<{ n: number }>(`select count(*)::int as n from inbox where tenant_id like 'many-%'`)
    ).rows
    expect(known?.n).toBe(5_000)
    // 2 s on a quiet machine, with everything before and after it.
    expect(performance.now() - levelling).toBeLessThan(30_000)
  })

  // Last: region-a is another server from here on.
  test('whose standby was promoted behind its primary: what the standby never got, and the new home has, is listed', async () => {
    await f.register(['standby'])
    const primary = f.regions['region-a'].server
    const standby = await startStandby(primary, { name: 'behind' })
    try {
      await f.write('standby', 'region-a', 'kept')
      await f.deliver('region-a', 'standby')
      await eventually('the standby has it', async () => (await standbyEvents(standby)) === 1)
      await standby.holdWal()
      const gone = [await f.write('standby', 'region-a', 'kept'), await f.write('standby', 'region-a', 'new')]
      expect(await f.deliver('region-a', 'standby')).toEqual(['applied', 'applied'])
      await primary.kill()
      const run = await f.force(['standby'])
      await f.write('standby', 'region-b', 'kept')
      // Killed with what had reached its socket; an operator gives it the primary's address, and promotes it.
      await standby.kill()
      appendFileSync(join(standby.server.dir, 'data', 'postgresql.auto.conf'), `primary_conninfo = ''\n`)
      promoted = await startPostgres({ dir: standby.server.dir, version: 18, port: primary.port, name: 'promoted' })
      f.forget('region-a')
      await (await f.admin('region-a')).query('select pg_promote(true, 30)')
      await expect(rejoin(f.parts(), 'region-a', 'its standby was promoted')).rejects.toMatchObject({ code: 'check-refused' })
      const found = await items(run)
      expect(found.map(i => [i.key, i.kind])).toEqual([
        ['standby', 'phantom'],
        ['standby', 'phantom'],
      ])
      expect(found.every(i => i.subject.includes('lost at the old one'))).toBe(true)
      await decideAll(run)
      await rejoin(f.parts(), 'region-a', 'its standby was promoted')
      expect(await accounts('region-a', 'standby')).toEqual(await accounts('region-b', 'standby'))
      const kept = await (await f.admin('region-a')).query('select from idempotency where idempotency_key = any ($1)', [gone])
      expect(kept.rowCount).toBe(2)
    } finally {
      await promoted?.stop()
      await standby.stop()
    }
  })
})

let promoted: PostgresServer | null = null

async function standbyEvents(standby: StandbyFixture): Promise<number> {
  const { rows } = await (await standby.admin('app')).query<{ n: number }>(
    `select count(*)::int as n from outbox where tenant_id = 'standby'`,
  )
  return rows[0]?.n ?? 0
}

/** What no session can do to a guarded table, and another copy of the data directory does. */
async function unguarded(sql: string): Promise<void> {
  const a = await f.admin('region-a')
  const each = (what: string) =>
    ['account', 'outbox', 'idempotency']
      .flatMap(table => ['update', 'delete'].map(event => `alter table ${table} ${what} trigger zzz_homeregion_${event};`))
      .join(' ')
  await a.query(`begin; ${each('disable')} ${sql}; ${each('enable always')} commit`)
}
