import { createServer, type Server } from 'node:net'
import { expect, test } from 'vitest'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { type Announcement, followAnnouncements } from '../../src/adapters/kafka-region/announcements.ts'
import { createRegionStream } from '../../src/adapters/kafka-region/kafka-stream.ts'
import { createSecrets } from '../../src/adapters/system/secrets.ts'
import type { Config, RegionConfig } from '../../src/domain/config.ts'
import type { OwnershipRecord } from '../../src/domain/ownership.ts'
import { useRig } from '../rig/use-rig.ts'
import { rigConfig } from './service-key.ts'

const rig = useRig()

function configured(): { readonly config: Config; readonly region: RegionConfig } {
  const config = rigConfig(rig.current)
  const region = config.regions.find(r => r.name === 'region-a')
  if (region === undefined) throw new Error('the rig has no region-a')
  return { config, region }
}

const secrets = createSecrets({})
const record = (key: string, epoch: number): OwnershipRecord => ({
  key,
  homeRegion: 'region-b',
  targetRegion: null,
  epoch,
  state: 'ACTIVE',
  seq: 1,
  runId: null,
  changedAt: '2026-01-01T00:00:00.000Z',
  changedBy: 'test',
})

test('a stream names the brokers that answered, and the ends of the outbox with what a group has committed', async () => {
  const { config, region } = configured()
  const stream = createRegionStream(region, config, secrets)
  try {
    expect(await stream.brokers()).toEqual([1])
    const inbox = await stream.outboxEnds('inbox-region-b')
    expect(inbox.map(p => p.partition)).toEqual(inbox.map((_, i) => i))
    expect(inbox.length).toBeGreaterThan(0)
    for (const { end } of inbox) expect(end).toMatch(/^\d+$/)
  } finally {
    await stream.close()
  }
})

test('an announcement can be read by whoever follows the topic, and is the last word on its key', async () => {
  const { config, region } = configured()
  const stream = createRegionStream(region, config, secrets)
  const key = `announced-${Date.now()}`
  const heard: Announcement[] = []
  // The service's own login: the operator may write the topic, the service may read it.
  const password = rig.current.sandbox.secrets.read('region-a.kafka.app_service')
  const login = { ...region.kafka, sasl: { mechanism: 'scram-sha-256', username: 'app_service', password: { env: 'service' } } } as const
  const feed = followAnnouncements(
    { login, secrets: { read: () => Promise.resolve(password) }, name: 'region-a Kafka', clientId: 'test', callTimeoutMs: 5000 },
    { topic: config.ownership.topic, groupPrefix: 'inbox-region-a' },
    a => heard.push(a),
  )
  try {
    await stream.announce(record(key, 1))
    await stream.announce(record(key, 2))
    expect(await waitUntil(() => heard.filter(a => a.key === key).length === 2, 20_000)).toBe(true)
    expect(heard.filter(a => a.key === key).at(-1)).toEqual({ key, homeRegion: 'region-b', epoch: 2 })
  } finally {
    await Promise.all([stream.close(), feed.close()])
  }
})

test('a port that refuses and one that never answers are both unreachable within the deadline, and close does not wait', async () => {
  const { config, region } = configured()
  const silent = createServer(() => undefined)
  const silentPort = await listen(silent)
  const refused = createServer(() => undefined)
  const refusedPort = await listen(refused)
  await new Promise(resolve => refused.close(resolve))
  try {
    for (const port of [silentPort, refusedPort]) {
      const at: RegionConfig = { ...region, kafka: { ...region.kafka, brokers: [`127.0.0.1:${port}`] } }
      const stream = createRegionStream(at, { ...config, policy: { ...config.policy, callTimeoutMs: 1000 } }, secrets)
      const began = performance.now()
      await expect(stream.brokers()).rejects.toMatchObject({ code: 'kafka-unreachable' })
      await expect(stream.announce(record('k', 1))).rejects.toMatchObject({ code: 'kafka-unreachable' })
      await stream.close()
      expect(performance.now() - began).toBeLessThan(5000)
    }
  } finally {
    silent.close()
  }
})

test('a wrong password is said without the password', async () => {
  const { config, region } = configured()
  const stream = createRegionStream(region, config, { read: () => Promise.resolve('not-the-password') })
  const error: unknown = await stream.brokers().then(
    () => null,
    (e: unknown) => e,
  )
  await stream.close()
  expect(error).toMatchObject({ code: 'kafka-unreachable' })
  expect(JSON.stringify([error, String(error)])).not.toContain('not-the-password')
})

async function listen(server: Server): Promise<number> {
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  return typeof address === 'object' && address !== null ? address.port : 0
}
