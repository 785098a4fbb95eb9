import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { FenceEntry } from '../../src/domain/fence.ts'
import { sampleEntry } from '../unit/fence-sample.ts'
import { type Fixture, startFixture } from './control-plane-fixture.ts'

describe.each([15, 18] as const)('the fence log of the control plane on PostgreSQL %i', version => {
  let fixture: Fixture
  beforeAll(async () => {
    fixture = await startFixture({ version })
  })
  afterAll(async () => {
    await fixture?.stop()
  })

  it('keeps each entry once and as it was told, however often it is handed over', async () => {
    const store = fixture.store()
    const entries = [
      sampleEntry({ region: 'once', event: 'apply-started', reason: `it's "night" \u{1F319}`, at: '2020-01-01T00:00:00.123Z' }),
      sampleEntry({ region: 'once', detail: { holds: ['a', 'b'] } }),
    ]
    await Promise.all([
      store.logFence(entries),
      fixture
        .store()
        .logFence(entries)
        .catch(() => undefined),
    ])
    await store.logFence(entries)
    const found = await store.fenceLog({ region: 'once', limit: 10 })
    expect(found).toMatchObject([...entries].reverse())
    expect(found[0]?.recordedBy).toBe('homeregion_operator')
    expect(await store.auditBreak()).toBeNull()
    const chain = (await store.audit(50)).filter(a => (a.detail as { region?: string }).region === 'once')
    expect(chain.map(a => a.event).sort()).toEqual(['fence-applied', 'fence-apply-started'])
  })

  it('says of each fence what was told last, notes aside', async () => {
    const store = fixture.store()
    const of = (fence: string, event: FenceEntry['event']) => sampleEntry({ region: 'newest', fence, event })
    // The clock of another machine decides nothing.
    await store.logFence([{ ...of('wall', 'applied'), at: '2099-01-01T00:00:00.000Z' }])
    await store.logFence([of('wall', 'lifted'), of('gate', 'applied'), of('gate', 'noted')])
    const told = (await store.fencesTold()).filter(f => f.region === 'newest')
    expect(told.map(f => [f.fence, f.event])).toEqual([
      ['gate', 'applied'],
      ['wall', 'lifted'],
    ])
    expect(await store.fenceLog({ region: 'newest', fence: 'gate', events: ['noted'], limit: 1 })).toHaveLength(1)
  })

  it('is all or nothing', async () => {
    const store = fixture.store()
    const bad = sampleEntry({ region: 'half', event: 'apply-started', reason: '' })
    await expect(store.logFence([sampleEntry({ region: 'half' }), bad])).rejects.toThrow()
    expect(await store.fenceLog({ region: 'half', limit: 10 })).toEqual([])
  })

  it.each([
    ['changed', `update homeregion_control.fence_log set reason = 'another'`],
    ['removed', 'delete from homeregion_control.fence_log'],
    ['emptied', 'truncate homeregion_control.fence_log'],
    [
      'told under another time',
      `insert into homeregion_control.fence_log (id, region, fence, kind, event, at, recorded_at, said_by, host, detail)
      values (gen_random_uuid(), 'r', 'f', 'exec', 'applied', now(), now() - interval '1 day', 'x', 'h', 'null')`,
    ],
  ])('cannot be %s by the operator', async (_, sql) => {
    await fixture.store().logFence([sampleEntry({ region: 'kept' })])
    await expect((await fixture.raw('operator')).query(sql)).rejects.toMatchObject({ code: '42501' })
  })

  it.each([
    ['event', { event: 'opened' }],
    ['kind', { kind: 'moat' }],
  ])('takes no unknown %s', async (_, change) => {
    await expect(fixture.store().logFence([{ ...sampleEntry(), ...(change as object) }])).rejects.toThrow()
  })
})
