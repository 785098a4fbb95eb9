import { describe, expect, test } from 'vitest'
import { SqlFailure } from '../../src/adapters/postgres/service-pool.ts'
import { eventOf, headersOf, payloadOf } from '../../src/service/envelope.ts'
import { route } from '../../src/service/gateway.ts'
import { createOwnershipCache } from '../../src/service/ownership-cache.ts'
import { refusalOf } from '../../src/service/refusal.ts'

const both = new Set(['region-a', 'region-b'])

describe('the gateway', () => {
  test('tries a key it knows nothing of here, because the boundary will name the home', () => {
    expect(route('region-a', null, 0, both)).toEqual({ kind: 'local' })
  })
  test('forwards to the home, once', () => {
    const hint = { homeRegion: 'region-b', epoch: 3 }
    expect(route('region-a', hint, 0, both)).toEqual({ kind: 'forward', region: 'region-b' })
    expect(route('region-a', hint, 1, both)).toEqual({ kind: 'local' })
  })
  test('rejects with the home where it cannot forward', () => {
    expect(route('region-a', { homeRegion: 'region-c', epoch: 3 }, 0, both)).toEqual({ kind: 'reject', homeRegion: 'region-c' })
  })
})

describe('the ownership cache', () => {
  test('keeps the later epoch, whatever order hints arrive in', () => {
    const cache = createOwnershipCache()
    cache.learn('k', { homeRegion: 'region-b', epoch: 2 })
    cache.learn('k', { homeRegion: 'region-a', epoch: 1 })
    expect(cache.hint('k')).toEqual({ homeRegion: 'region-b', epoch: 2 })
  })
  test('forgets the oldest hint above its capacity', () => {
    const cache = createOwnershipCache(2)
    for (const key of ['a', 'b', 'c']) cache.learn(key, { homeRegion: 'region-a', epoch: 1 })
    expect([cache.hint('a'), cache.size]).toEqual([null, 2])
  })
})

describe('the envelope', () => {
  const envelope = {
    eventId: '00000000-0000-4000-8000-000000000001',
    key: 'tenant "42"\u00e9',
    aggregateType: 'account',
    aggregateId: 'a1',
    eventType: 'account.address-changed',
    sourceRegion: 'region-a',
    homeRegion: 'region-a',
    ownerEpoch: 7,
    aggregateVersion: 12,
    occurredAt: '2026-01-01T00:00:00.000000Z',
  }
  test('is the same after its way through headers and JSON', () => {
    const answer = { id: 'request-1', response: { version: 12 } }
    const value = JSON.stringify(payloadOf({ address: 'x' }, answer))
    const raw = { headers: headersOf(envelope), value }
    expect(eventOf(raw.headers, value)).toEqual({ ...envelope, data: { address: 'x' }, answer, raw })
  })
  test('is absent from a message of somebody else', () => {
    expect(eventOf({}, '{"event_id":"x"}')).toBeNull()
  })
  test('survives a payload that cannot be read, as an event without data', () => {
    expect(eventOf(headersOf(envelope), '{broken')).toMatchObject({ eventId: envelope.eventId, data: null, answer: null })
  })
})

describe('a refusal', () => {
  const failure = (code: string, detail?: string) => {
    const error = Object.assign(Object.create(SqlFailure.prototype) as SqlFailure, { sqlstate: code, detail: detail ?? null })
    return refusalOf(error)
  }
  test('is told by its SQLSTATE and names the home that the boundary named', () => {
    const detail = JSON.stringify({ key: 'k', homeRegion: 'region-b', epoch: 4, state: 'ACTIVE' })
    expect(failure('HR001', detail)).toMatchObject({ kind: 'notHome', homeRegion: 'region-b', epoch: 4, state: 'ACTIVE' })
    expect(failure('HR002')?.kind).toBe('staleEpoch')
    expect(failure('HR003', 'not JSON')).toMatchObject({ kind: 'unknownKey', homeRegion: null, epoch: null })
  })
  test('is not what any other error is', () => {
    expect(failure('23505')).toBeNull()
    expect(refusalOf(new Error('HR001'))).toBeNull()
  })
})
