import { expect, test } from 'vitest'
import type { BoundaryRow } from '../../src/domain/boundary.ts'
import { HomeregionError } from '../../src/domain/errors.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import type { KnownRecord } from '../../src/domain/ports.ts'
import { requireLiftAllowed, unknownOf } from '../../src/engine/lift-permission.ts'
import { codedError } from './coded-error.ts'

const row = (key: string, epoch = 1): BoundaryRow => ({
  ...{ key, epoch, homeRegion: 'region-a', state: 'ACTIVE' as const, token: 0, barrierEventId: null, writable: false },
})
const record = (key: string, changes: Partial<OwnershipRecord> = {}): OwnershipRecord =>
  ({ key, homeRegion: 'region-a', epoch: 1, state: 'ACTIVE', ...changes }) as OwnershipRecord

/** Another region that knows these rows; null: it does not answer. `asked`: how often it was. */
function other(region: string, rows: readonly BoundaryRow[] | null) {
  const made = {
    ...{ region, asked: 0 },
    aheadOf: (records: readonly KnownRecord[]) => {
      made.asked += 1
      if (rows === null) return Promise.reject(new HomeregionError('region-unreachable', { fact: `${region} is dark` }))
      const asked = new Map(records.map(r => [r.key, r]))
      const found = rows.filter(r => r.epoch > (asked.get(r.key)?.epoch ?? r.epoch))
      return Promise.resolve({ count: found.length, rows: found })
    },
  }
  return made
}

/** A region whose boundary has these rows, and a control plane with these records. */
function question(rows: readonly BoundaryRow[], records: readonly OwnershipRecord[], asTarget = false, defaultHome: string | null = null) {
  const pages: (string | null)[] = []
  const byKey = new Map(records.map(r => [r.key, r]))
  return {
    ...{ region: 'region-a', asTarget, defaultHome, pages, others: [] as readonly ReturnType<typeof other>[] },
    controlPlane: {
      countOwnership: () => Promise.resolve(records.map(r => ({ homeRegion: r.homeRegion, state: r.state, keys: 1 }))),
      ownership: (keys: readonly string[]) => Promise.resolve(keys.flatMap(key => byKey.get(key) ?? [])),
    },
    database: {
      homeKeys: ({ after, limit }: { after: string | null; limit: number }) => {
        pages.push(after)
        return Promise.resolve(rows.filter(r => after === null || r.key > after).slice(0, limit))
      },
    },
  }
}

test('a region whose keys are the same on both sides may be opened', async () => {
  const asked = question([row('a'), row('b')], [record('a'), record('b', { state: 'DRAINING' })])
  expect(await requireLiftAllowed(asked)).toEqual({ owned: 2, compared: 2, silent: [] })
})

test('a region that owns nothing may not, unless it is about to receive a key', async () => {
  expect(await codedError(() => requireLiftAllowed(question([], [])))).toMatchObject({ code: 'lift-refused' })
  expect(await requireLiftAllowed(question([], [], true))).toEqual({ owned: 0, compared: 0, silent: [] })
})

test.each([
  ['is at home elsewhere', record('b', { homeRegion: 'region-b', epoch: 2 }), 'b is at home in region-b (epoch 2)'],
  ['has another epoch', record('b', { epoch: 3 }), 'b has epoch 3 there, 1 here'],
  ['is fenced', record('b', { state: 'FENCED' }), 'b is FENCED'],
  ['is not registered', record('c'), 'b is not registered'],
])('a key that %s keeps the region closed, for a target too', async (_, other, why) => {
  for (const asTarget of [false, true]) {
    const error = await codedError(() => requireLiftAllowed(question([row('a'), row('b')], [record('a'), other], asTarget)))
    expect(error.code).toBe('lift-refused')
    expect(error.text.fact).toContain(why)
  }
})

test('a key that nobody registered may be written at its default home only', async () => {
  const asked = (home: string) => question([row('a'), row('x')], [record('a')], false, home)
  expect(await requireLiftAllowed(asked('region-a'))).toMatchObject({ compared: 2 })
  expect((await codedError(() => requireLiftAllowed(asked('region-b')))).code).toBe('lift-refused')
})

test('every page of a large region is compared, the last key too', async () => {
  const keys = Array.from({ length: 12_000 }, (_, i) => String(i).padStart(6, '0'))
  const records = keys.map(key => record(key, key === '011999' ? { homeRegion: 'region-b' } : {}))
  const asked = question(
    keys.map(key => row(key)),
    records,
  )
  expect((await codedError(() => requireLiftAllowed(asked))).text.fact).toContain('1 of 12000 keys')
  expect(asked.pages).toEqual([null, '004999', '009999'])
})

test('without the control plane nothing is lifted', async () => {
  const down = question([row('a')], [])
  down.controlPlane.countOwnership = () => Promise.reject(new HomeregionError('control-plane-unreachable', { fact: 'it is down' }))
  const error = await codedError(() => requireLiftAllowed(down))
  expect(error.code).toBe('control-plane-unreachable')
  expect(error.text.state).toContain('No fence')
})

test('a move that the control plane has forgotten is known to the region that has the key now', async () => {
  for (const asTarget of [false, true]) {
    const asked = question([row('a'), row('b')], [record('a'), record('b')], asTarget)
    asked.others = [other('region-b', [{ ...row('b', 2), homeRegion: 'region-b' }]), other('region-c', null)]
    const error = await codedError(() => requireLiftAllowed(asked))
    expect(error.code).toBe('lift-refused')
    expect(error.text.fact).toContain('region-b has b at home in region-b under epoch 2, the control plane in region-a under epoch 1')
    expect(error.text.next).toBe('homeregion doctor')
  }
})

test('a key that nobody registered is not opened at its default home while another region has it', async () => {
  const asked = question([row('x')], [], true, 'region-a')
  asked.others = [other('region-b', [{ ...row('x', 2), homeRegion: 'region-b' }])]
  expect((await codedError(() => requireLiftAllowed(asked))).text.fact).toContain('region-b has x at home in region-b under epoch 2')
})

test('a move that the control plane knows by now was no forgotten one', async () => {
  const asked = question([row('a')], [record('a')])
  const records = [record('a'), record('a', { homeRegion: 'region-b', epoch: 2 })]
  asked.controlPlane.ownership = () => Promise.resolve(records.splice(0, 1))
  asked.others = [other('region-b', [{ ...row('a', 2), homeRegion: 'region-b' }])]
  expect(await requireLiftAllowed(asked)).toMatchObject({ compared: 1 })
})

test('a region that does not answer keeps nothing closed, is asked once, and is named', async () => {
  const keys = Array.from({ length: 7_000 }, (_, i) => String(i).padStart(6, '0'))
  const asked = question(
    keys.map(key => row(key)),
    keys.map(key => record(key)),
  )
  const [dark, bright] = [other('region-c', null), other('region-b', [])]
  asked.others = [dark, bright]
  const permission = await requireLiftAllowed(asked)
  expect(permission).toEqual({ owned: 7_000, compared: 7_000, silent: ['region-c'] })
  expect([dark.asked, bright.asked]).toEqual([1, 2])
  expect(unknownOf(permission)).toBe('; nothing is known of region-c')
  expect(unknownOf({ ...permission, silent: [] })).toBe('')
})
