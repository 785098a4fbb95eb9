import { expect, test } from 'vitest'
import type { BoundaryRow } from '../../src/domain/boundary.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { KnownRecord } from '../../src/domain/ports.ts'
import { type RegisterParts, registerEverywhere, syncRegions } from '../../src/engine/register-keys.ts'
import { codedError } from './coded-error.ts'

const row = (key: string, homeRegion: string, epoch = 1): BoundaryRow => ({
  ...{ key, homeRegion, epoch, state: 'ACTIVE' as const, token: 0, barrierEventId: null, writable: false },
})
const record = (key: string, homeRegion: string, epoch = 1) => ({ key, homeRegion, epoch, state: 'ACTIVE' }) as OwnershipRecord

/** A region's boundary, as far as registrations go: what it knows stays. `dark`: from so many answers on it does not answer. */
function boundary(region: string, known: readonly BoundaryRow[] = [], dark = Number.POSITIVE_INFINITY) {
  const rows = new Map(known.map(r => [r.key, r]))
  let answers = 0
  const answering = () => {
    if ((answers += 1) > dark) throw new Error(`${region} is dark`)
  }
  return {
    region,
    rows,
    aheadOf: async (records: readonly KnownRecord[]) => {
      await Promise.resolve()
      answering()
      const found = records.flatMap(({ key, homeRegion, epoch }) => {
        const own = rows.get(key)
        return own !== undefined && (own.epoch > epoch || (own.epoch === epoch && own.homeRegion !== homeRegion)) ? [own] : []
      })
      return { count: found.length, rows: found }
    },
    register: async (keys: readonly KnownRecord[]) => {
      await Promise.resolve()
      answering()
      for (const { key, homeRegion, epoch } of keys) if (!rows.has(key)) rows.set(key, row(key, homeRegion, epoch))
      return keys.flatMap(({ key }) => rows.get(key) ?? [])
    },
  }
}

/** `onRegister`: happens while the control plane registers. */
function parts(
  regions: readonly ReturnType<typeof boundary>[],
  options: { defaultHome?: string; records?: readonly OwnershipRecord[]; onRegister?: () => void } = {},
): RegisterParts & { readonly records: Map<string, OwnershipRecord> } {
  const records = new Map((options.records ?? []).map(r => [r.key, r]))
  return {
    ...{ regions, records, defaultHome: options.defaultHome ?? null },
    controlPlane: {
      ownership: keys => Promise.resolve(keys.flatMap(key => records.get(key) ?? [])),
      listOwnership: () => Promise.resolve([...records.values()]),
      register: keys => {
        for (const { key, homeRegion } of keys) records.set(key, record(key, homeRegion))
        options.onRegister?.()
        return Promise.resolve(keys.flatMap(({ key }) => records.get(key) ?? []))
      },
    },
  }
}

const AT_B = [{ key: 'k', homeRegion: 'b' }]

test('a key that the default home writes already is not registered elsewhere, and what to do instead is said', async () => {
  const asked = parts([boundary('a', [row('k', 'a')]), boundary('b')], { defaultHome: 'a' })
  const error = await codedError(() => registerEverywhere(asked, AT_B))
  expect(error).toMatchObject({
    code: 'key-exists',
    text: {
      fact: 'a has k at home in a under epoch 1, the control plane not at all',
      state: 'Nothing was registered.',
      next: 'homeregion key add k --home a   (then homeregion transfer k --to b)',
    },
  })
  expect(asked.records.size).toBe(0)
})

test('it can be registered where it is written, as often as it takes', async () => {
  const b = boundary('b')
  const asked = parts([boundary('a', [row('k', 'a')]), b], { defaultHome: 'a' })
  expect(await registerEverywhere(asked, [{ key: 'k', homeRegion: 'a' }])).toMatchObject([{ key: 'k', homeRegion: 'a' }])
  expect(b.rows.get('k')).toMatchObject({ homeRegion: 'a', epoch: 1 })
  expect(await syncRegions(asked)).toBe(1)
})

test('a key whose registration and moves the control plane has forgotten is not registered anew anywhere', async () => {
  const asked = parts([boundary('a', [row('k', 'b', 4)]), boundary('b', [row('k', 'b', 4)])])
  const error = await codedError(() => registerEverywhere(asked, AT_B))
  expect(error.code).toBe('key-exists')
  expect(error.text.fact).toContain('k at home in b under epoch 4')
  expect(error.text.next).toMatch(/^homeregion doctor/)
  expect(asked.records.size).toBe(0)
})

test('a default home that does not answer may be writing the key: nothing is registered elsewhere', async () => {
  const asked = parts([boundary('a', [], 0), boundary('b')], { defaultHome: 'a' })
  expect(await codedError(() => registerEverywhere(asked, AT_B))).toMatchObject({ code: 'region-unreachable', retriable: true })
  expect(asked.records.size).toBe(0)
})

test('another region that does not answer is told later', async () => {
  const [a, b] = [boundary('a'), boundary('b')]
  const asked = parts([a, b, boundary('c', [], 0)], { defaultHome: 'a' })
  const error = await codedError(() => registerEverywhere(asked, AT_B))
  expect(error).toMatchObject({ code: 'needs-human', text: { next: 'homeregion key sync' } })
  expect(error.text.fact).toBe('1 of 3 regions could not be told about the keys: c: c is dark')
  expect(b.rows.get('k')).toMatchObject({ homeRegion: 'b' })
})

test('a default home that goes dark before it is told keeps the home closed', async () => {
  const b = boundary('b')
  const error = await codedError(() => registerEverywhere(parts([boundary('a', [], 1), b], { defaultHome: 'a' }), AT_B))
  expect(error.text.fact).toContain('b: not before a, the default home')
  expect(error.text.state).toContain('refuses their writes, but for a.')
  expect(b.rows.size).toBe(0)
})

test('a key that the default home writes for the first time meanwhile keeps the home closed', async () => {
  const [a, b] = [boundary('a'), boundary('b')]
  const asked = parts([a, b], { defaultHome: 'a', onRegister: () => a.rows.set('k', row('k', 'a')) })
  const error = await codedError(() => registerEverywhere(asked, AT_B))
  expect(error).toMatchObject({
    code: 'needs-human',
    text: { fact: 'a has k at home in a under epoch 1, the control plane in b under epoch 1' },
  })
  expect(b.rows.size).toBe(0)
})

test('a contradiction that cannot be judged any more keeps the home closed as well', async () => {
  const [a, b] = [boundary('a', [row('k', 'a')]), boundary('b')]
  const asked = parts([a, b], { records: [record('k', 'b')] })
  const down = { ...asked, controlPlane: { ...asked.controlPlane, ownership: () => Promise.reject(new Error('down')) } }
  await expect(syncRegions(down)).rejects.toThrow('down')
  expect(b.rows.size).toBe(0)
})

test('telling again takes a region that is behind as it is, and one that was told of a later move as the control plane says', async () => {
  const records = [record('behind', 'b', 3), record('moved', 'b', 2)]
  const [a, b] = [boundary('a', [row('behind', 'a', 1), row('moved', 'b', 2)]), boundary('b')]
  const asked = parts([a, b], { records })
  const stale = { ...asked.controlPlane, listOwnership: () => Promise.resolve([record('behind', 'b', 3), record('moved', 'a', 1)]) }
  expect(await syncRegions({ ...asked, controlPlane: stale })).toBe(2)
  expect(b.rows.get('behind')).toMatchObject({ homeRegion: 'b', epoch: 3 })
})

test('telling again where a region knows a later move refuses, and opens nothing', async () => {
  const b = boundary('b')
  const asked = parts([boundary('a', [row('k', 'c', 6)]), b], { records: [record('k', 'b', 5)] })
  expect(await codedError(() => syncRegions(asked))).toMatchObject({
    code: 'needs-human',
    text: { fact: 'a has k at home in c under epoch 6, the control plane in b under epoch 5' },
  })
  expect(b.rows.size).toBe(0)
})
