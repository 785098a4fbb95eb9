import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { ReconcileItem } from '../../src/domain/failover.ts'
import { rejoin } from '../../src/engine/rejoin.ts'
import { type RejoinFixture, startRejoinFixture } from './rejoin-fixture.ts'

let f: RejoinFixture

beforeAll(async () => {
  f = await startRejoinFixture()
})
afterAll(async () => {
  await f?.stop()
})

async function items(run: string): Promise<readonly ReconcileItem[]> {
  return await f.store.reconcileItems(run, { limit: 1_000 })
}

async function decideAll(run: string): Promise<void> {
  for (const item of await items(run))
    if (item.decision === null) await f.store.decideReconcileItem(run, item.id, 'dropped', 'it was a test')
}

async function accounts(side: 'region-a' | 'region-b', key: string): Promise<readonly unknown[]> {
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

    await decideAll(run)
    const second = f.parts()
    await rejoin(second, 'region-a', 'it answers')
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
})
