import { describe, expect, test } from 'vitest'
import type { Config } from '../../src/domain/config.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import { computePlan, droppedChecks, interlockPolicy } from '../../src/domain/planning.ts'
import type { PinnedRunbook } from '../../src/domain/runbook.ts'
import { step } from './runbook-sample.ts'

const config = {
  topology: 'independent',
  transport: { relay: 'polling', mirror: 'none' },
  idempotency: { schema: 'public', table: 'idempotency', key: 'tenant_id', id: 'id' },
  regions: [
    { name: 'region-a', fences: [] },
    { name: 'region-b', fences: [] },
  ],
  ownership: { topic: 'ownership', defaultHome: null },
  policy: { maxKeys: 100, evidenceMaxAgeMs: 5000, runLeaseMs: 15_000, callTimeoutMs: 5000 },
} as unknown as Config

const pinned: PinnedRunbook = {
  runbook: { name: 'transfer', intent: 'transfer', title: 'Move', steps: [] },
  text: 'text',
  sha256: 'abc',
  origin: 'runbooks/transfer.yaml',
}

function record(key: string, change: Partial<OwnershipRecord> = {}): OwnershipRecord {
  return {
    key,
    homeRegion: 'region-a',
    targetRegion: null,
    epoch: 17,
    state: 'ACTIVE',
    seq: 1,
    runId: null,
    changedAt: '2026-01-01T00:00:00.000Z',
    changedBy: 'me',
    ...change,
  }
}

function plan(keys: readonly string[], records: readonly OwnershipRecord[], target = 'region-b') {
  return computePlan({ pinned, keys, target, records, config, atHome: new Map() })
}

describe('a plan', () => {
  test('names each move with the epoch it expects, in the order asked for', () => {
    const { moves } = plan(['b', 'a'], [record('a'), record('b', { epoch: 3 })])
    expect(moves.map(m => [m.key, m.source, m.target, m.epoch])).toEqual([
      ['b', 'region-a', 'region-b', 3],
      ['a', 'region-a', 'region-b', 17],
    ])
  })

  test('has the same id for the same input, and another as soon as an epoch, a key or the runbook differs', () => {
    const id = plan(['a'], [record('a')]).id
    expect(plan(['a'], [record('a')]).id).toBe(id)
    expect(plan(['a'], [record('a', { epoch: 18 })]).id).not.toBe(id)
    expect(plan(['a', 'b'], [record('a'), record('b')]).id).not.toBe(id)
    expect(
      computePlan({
        pinned: { ...pinned, sha256: 'other' },
        keys: ['a'],
        target: 'region-b',
        records: [record('a')],
        config,
        atHome: new Map(),
      }).id,
    ).not.toBe(id)
  })

  test('leaves keys out that are at home in the target, and refuses when that is the only one', () => {
    expect(plan(['a', 'b'], [record('a', { homeRegion: 'region-b' }), record('b')])).toMatchObject({
      moves: [{ key: 'b' }],
      alreadyThere: [{ key: 'a' }],
    })
    expect(() => plan(['a'], [record('a')], 'region-a')).toThrow(expect.objectContaining({ code: 'same-region' }))
  })

  test('refuses unknown regions, unknown keys and keys that are being moved, and says which', () => {
    expect(() => plan(['a'], [record('a')], 'region-z')).toThrow(expect.objectContaining({ code: 'unknown-region' }))
    expect(() => plan(['a', 'nosuch'], [record('a')])).toThrow(/not registered in the control plane: nosuch/)
    expect(() => plan(['a'], [record('a', { state: 'FENCED', runId: 'run-9', targetRegion: 'region-b' })])).toThrow(
      /a is FENCED: run run-9 by me/,
    )
  })
})

describe('checks that leave nothing to observe', () => {
  test('are dropped in the open, never from what the interlock requires of the fence', () => {
    expect(droppedChecks(config).map(d => d.check)).toEqual(['events-replicated'])
    expect(interlockPolicy(config).required).toEqual(['fence-holds', 'barrier-applied', 'versions-equal', 'idempotency-carried'])
    expect(interlockPolicy({ ...config, idempotency: null }).required).toEqual(['fence-holds', 'barrier-applied', 'versions-equal'])
    expect(interlockPolicy({ ...config, topology: 'shared' }).required).toEqual(['fence-holds'])
  })

  test('carry their reason into the plan', () => {
    expect(plan(['a'], [record('a')]).dropped[0]?.reason).toContain('barrier-applied proves the arrival')
  })
})

describe('a plan that fences a whole region', () => {
  const fencing = {
    ...pinned,
    runbook: {
      ...pinned.runbook,
      steps: [...pinned.runbook.steps, step('seal', { action: { kind: 'fence-region', fences: ['boundary'] } })],
    },
  }
  const fencePlan = (atHome: number, change: Partial<Config> = {}, book = fencing) =>
    computePlan({
      pinned: book,
      keys: ['a'],
      target: 'region-b',
      records: [record('a')],
      config: { ...config, ...change },
      atHome: new Map([['region-a', atHome]]),
    })

  test('is refused while a key stays behind, and accepted when none does', () => {
    expect(fencePlan(1).moves).toHaveLength(1)
    expect(() => fencePlan(3)).toThrow(expect.objectContaining({ code: 'fence-too-wide', fields: { region: 'region-a', staying: 2 } }))
  })

  test('is refused where keys that nobody registered are at home', () => {
    expect(() => fencePlan(1, { ownership: { topic: 't', defaultHome: 'region-a' } })).toThrow(/nobody registered/)
  })

  test('is refused with the fences there are, when it names another', () => {
    const strange = {
      ...fencing,
      runbook: { ...fencing.runbook, steps: [step('seal', { action: { kind: 'fence-region', fences: ['moat'] } })] },
    }
    expect(() => fencePlan(1, {}, strange)).toThrow(/"moat"; region-a has boundary/)
  })
})
