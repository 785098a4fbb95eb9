import { expect, test } from 'vitest'
import { ownershipFindings } from '../../src/cli/doctor-ownership.ts'
import type { BoundaryRow } from '../../src/domain/boundary.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { KnownRecord } from '../../src/domain/ports.ts'

const row = (key: string, homeRegion: string, epoch = 1): BoundaryRow => ({
  ...{ key, homeRegion, epoch, state: 'ACTIVE' as const, token: 0, barrierEventId: null, writable: true },
})
const record = (key: string, homeRegion: string, epoch = 1) => ({ key, homeRegion, epoch, state: 'ACTIVE' }) as OwnershipRecord
const numbered = (count: number) => Array.from({ length: count }, (_, i) => `k${String(i).padStart(6, '0')}`)

/** What doctor says of region-b, which knows these rows, beside a control plane with these records; both in the order of their keys. */
async function say(rows: readonly BoundaryRow[], records: readonly OwnershipRecord[], defaultHome: string | null = null) {
  const [rowOf, recordOf] = [new Map(rows.map(r => [r.key, r])), new Map(records.map(r => [r.key, r]))]
  const page = <T extends { key: string }>(all: readonly T[], after: string | null, limit: number) =>
    Promise.resolve(all.filter(r => after === null || r.key > after).slice(0, limit))
  const region = () => ({
    homeKeys: async ({ after, limit }: { after: string | null; limit: number }) =>
      await page(
        rows.filter(r => r.homeRegion === 'region-b'),
        after,
        limit,
      ),
    aheadOf: (known: readonly KnownRecord[]) => {
      const found = known.flatMap(({ key, homeRegion, epoch }) => {
        const own = rowOf.get(key)
        return own !== undefined && (own.epoch > epoch || (own.epoch === epoch && own.homeRegion !== homeRegion)) ? [own] : []
      })
      return Promise.resolve({ count: found.length, rows: found })
    },
  })
  const controlPlane = {
    ownership: (keys: readonly string[]) => Promise.resolve(keys.flatMap(key => recordOf.get(key) ?? [])),
    listOwnership: async ({ after, limit }: { after?: string; limit: number }) => await page(records, after ?? null, limit),
  }
  return await ownershipFindings({ controlPlane, region }, 'region-b', defaultHome)
}

test('a region that knows what the control plane knows, or less, is as it should be', async () => {
  expect(await say([row('a', 'region-b'), row('b', 'region-a')], [record('a', 'region-b'), record('b', 'region-c', 2)])).toEqual([
    {
      ...{ place: 'region-b database', check: 'ownership', verdict: 'pass' },
      detail: 'knows nothing later of 2 keys than the control plane',
    },
  ])
})

test('a forgotten move is told from an epoch that is only behind', async () => {
  const found = await say([row('a', 'region-b', 2), row('b', 'region-b', 6)], [record('a', 'region-a'), record('b', 'region-b', 5)])
  expect(found).toMatchObject([
    {
      verdict: 'fail',
      keys: ['a'],
      detail:
        'the control plane has forgotten a move of 1 key: region-b has a at home in region-b under epoch 2, the control plane in region-a under epoch 1   (docs/FAILOVER.md)',
    },
    {
      verdict: 'fail',
      keys: ['b'],
      detail:
        'the control plane is behind: 1 key under a later epoch: region-b has b at home in region-b under epoch 6, the control plane in region-b under epoch 5   (docs/FAILOVER.md)',
    },
  ])
})

test('keys that the control plane does not have at all are found at their home, each of them, past the first page', async () => {
  const names = numbered(4_500)
  const found = await say(
    names.map(name => row(name, 'region-b')),
    [record('k000001', 'region-b')],
  )
  const lost = names.filter(name => name !== 'k000001')
  expect(found).toMatchObject([{ verdict: 'fail', keys: lost }])
  expect(found[0]?.detail).toBe(
    'the control plane does not know 4499 keys at home here: k000000 (epoch 1); k000002 (epoch 1); k000003 (epoch 1); k000004 (epoch 1); k000005 (epoch 1) +4494 more   (docs/FAILOVER.md)',
  )
})

test('keys that nobody registered are no finding at their default home, and are one elsewhere', async () => {
  expect(await say([row('a', 'region-b')], [], 'region-b')).toMatchObject([{ verdict: 'pass' }])
  expect(await say([row('a', 'region-b')], [], 'region-a')).toMatchObject([{ verdict: 'fail', keys: ['a'] }])
})
