import { afterAll, beforeAll, expect, it } from 'vitest'
import { type RejoinFixture, startRejoinFixture } from './rejoin-fixture.ts'

let fixture: RejoinFixture
beforeAll(async () => {
  fixture = await startRejoinFixture()
})
afterAll(async () => await fixture.stop())

it('what the stream brings to the old home while the new one is written on is no write that only the old one has', async () => {
  await fixture.register(['busy'])
  for (const account of ['lost', 'kept']) await fixture.write('busy', 'region-a', account)
  await fixture.deliver('region-a', 'busy')
  // Never reaches region-b.
  await fixture.write('busy', 'region-a', 'lost')
  await fixture.force(['busy'])
  await fixture.database('region-a').followMany([{ key: 'busy', homeRegion: 'region-b', epoch: 2 }])
  for (let i = 0; i < 5; i += 1) await fixture.write('busy', 'region-b', 'kept')
  const found = async () => (await fixture.recovery.findLost('region-a', 'region-b', [{ key: 'busy', epoch: 1 }])).map(f => f.subject)
  const first = await found()
  expect(first).toEqual([expect.stringMatching(/^account lost, version 2 /)])
  // region-a follows, and is behind for as long as somebody writes at region-b.
  for (let i = 1; i <= 5; i += 1) {
    expect(await fixture.deliver('region-b', 'busy', 1)).toEqual(['applied'])
    expect(await found(), `after ${i} events`).toEqual(first)
  }
})
