import { expect, test } from 'vitest'
import { systemClock } from '../../src/adapters/system/clock.ts'
import type { BoundaryRow } from '../../src/domain/boundary.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { ControlPlane, KnownRecord, RegionDatabase } from '../../src/domain/ports.ts'
import { compareOwnership } from '../../src/engine/compare-ownership.ts'

type Known = Readonly<Record<string, Pick<KnownRecord, 'homeRegion' | 'epoch'>>>

function listed(known: Known): readonly KnownRecord[] {
  return Object.entries(known).map(([key, at]) => ({ key, ...at }))
}

/** `recorded`: what the control plane has; `at`: what each region has; a region that is not there does not answer. */
async function compared(recorded: Known, at: Readonly<Record<string, Known>>, others = ['b', 'c']) {
  const controlPlane: Pick<ControlPlane, 'listOwnership' | 'ownership'> = {
    listOwnership: ({ homeRegion, after = '', limit }) =>
      Promise.resolve(
        listed(recorded)
          .filter(r => r.homeRegion === homeRegion && r.key > after)
          .slice(0, limit) as OwnershipRecord[],
      ),
    ownership: keys => Promise.resolve(listed(recorded).filter(r => keys.includes(r.key)) as OwnershipRecord[]),
  }
  const region = (name: string) => {
    const known = at[name]
    const answer: Pick<RegionDatabase, 'homeKeys' | 'aheadOf'> = {
      homeKeys: ({ after, limit }) =>
        Promise.resolve(
          listed(known ?? {})
            .filter(r => r.homeRegion === name && r.key > (after ?? ''))
            .slice(0, limit) as BoundaryRow[],
        ),
      aheadOf: records => {
        if (known === undefined) return Promise.reject(new Error('dark'))
        const asked = new Map(records.map(r => [r.key, r]))
        const rows = listed(known).filter(r => {
          const own = asked.get(r.key)
          return own !== undefined && (r.epoch > own.epoch || (r.epoch === own.epoch && r.homeRegion !== own.homeRegion))
        }) as BoundaryRow[]
        return Promise.resolve({ count: rows.length, rows })
      },
    }
    return answer as RegionDatabase
  }
  return await compareOwnership({ controlPlane, region, clock: systemClock }, 'a', others)
}

const K = { k: { homeRegion: 'a', epoch: 1 } }

test('nothing is ahead: the lease may be granted', async () => {
  expect(await compared(K, { a: K, b: K, c: {} })).toEqual({ contradicted: null, silent: [] })
})

test('a key that another region has under a later epoch was taken, and is named', async () => {
  expect((await compared(K, { a: K, b: { k: { homeRegion: 'b', epoch: 2 } }, c: K })).contradicted).toBe(
    'b has k at home in b under epoch 2, the control plane in a under epoch 1',
  )
})

test('so was one that the control plane has never heard of, and the region itself may write', async () => {
  expect((await compared({}, { a: K, b: K, c: { k: { homeRegion: 'b', epoch: 2 } } })).contradicted).toBe(
    'c has k at home in b under epoch 2, the control plane not at all',
  )
})

test('a region that does not answer is named, and keeps nobody from hearing the others', async () => {
  expect(await compared(K, { a: K, b: K })).toEqual({ contradicted: null, silent: ['c'] })
  expect((await compared(K, { a: K, b: { k: { homeRegion: 'b', epoch: 2 } } })).contradicted).toContain('b has k at home in b')
})

test('a move that the control plane knows is none, and the regions are asked about every page', async () => {
  const names = Array.from({ length: 4_500 }, (_, i) => `k${String(i).padStart(5, '0')}`)
  const all = (homeRegion: string, epoch: number) => Object.fromEntries(names.map(key => [key, { homeRegion, epoch }]))
  expect(await compared(all('b', 2), { a: all('a', 1), b: all('b', 2), c: {} })).toEqual({ contradicted: null, silent: [] })
  const last = { ...all('a', 1), k04499: { homeRegion: 'c', epoch: 2 } }
  expect((await compared(all('a', 1), { a: all('a', 1), b: {}, c: last })).contradicted).toBe(
    'c has k04499 at home in c under epoch 2, the control plane in a under epoch 1',
  )
})

test('where nobody else is, nobody is asked', async () => {
  expect(await compared(K, { a: K }, [])).toEqual({ contradicted: null, silent: [] })
})
