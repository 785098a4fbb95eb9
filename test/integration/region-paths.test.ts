import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { freePorts } from '../../sandbox/free-ports.ts'
import { killProcess } from '../../sandbox/processes.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { createRegionDatabase } from '../../src/adapters/postgres-region/region-database.ts'
import { systemClock } from '../../src/adapters/system/clock.ts'
import type { DatabaseLogin, Endpoint, RegionConfig } from '../../src/domain/config.ts'
import { HomeregionError } from '../../src/domain/errors.ts'
import type { ControlPlane, RegionStream } from '../../src/domain/ports.ts'
import { darkness, lookAtRegion } from '../../src/engine/vantage.ts'
import { startCuttingProxy } from '../rig/cutting-proxy.ts'
import { startSessionPooler } from '../rig/session-pooler.ts'
import { createFakeEngine, only } from '../unit/engine-fixture.ts'
import { type RegionFixture, secrets, startRegion } from './boundary-fixture.ts'
import { startStandby } from './standby-fixture.ts'

const PATIENCE_MS = 1_500
const DARK_AFTER_MS = 10_000

let f: RegionFixture
const ends: (() => Promise<void>)[] = []
beforeAll(async () => {
  f = await startRegion({ version: 15 })
})
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})
afterAll(async () => await f?.stop())

async function proxy() {
  const started = await startCuttingProxy(() => f.server.port)
  ends.push(async () => await started.stop())
  return started
}

const at = (login: DatabaseLogin, port: number) => ({ ...login, url: login.url.replace(/:\d+\//, `:${port}/`) })
const endpoint = (kind: Endpoint['kind'], name: string, port: number): Endpoint => ({ name, kind, host: '127.0.0.1', port, database: null })

/** The region as configured, its Kafka silent, and nobody else ever having seen it. */
async function look(database: Partial<RegionConfig['database']>, read = secrets.read) {
  const region: RegionConfig = { ...f.region, database: { ...f.region.database, ...database } }
  const db = createRegionDatabase(region, f.config, { read })
  ends.push(async () => await db.close())
  const silent = new HomeregionError('kafka-unreachable', { fact: 'region-a Kafka cannot be reached' })
  const engine = {
    ...createFakeEngine([db], {}, systemClock),
    controlPlane: only<ControlPlane>({ sights: () => Promise.resolve([]), leaseStates: () => Promise.resolve([]) }),
    stream: () => only<RegionStream>({ brokers: () => Promise.reject(silent) }),
  }
  const started = systemClock.monotonicMs()
  const vantage = await lookAtRegion(engine, 'region-a', DARK_AFTER_MS, PATIENCE_MS)
  return { vantage, dark: darkness(vantage, DARK_AFTER_MS), tookMs: systemClock.monotonicMs() - started }
}

test('a region whose operator’s address is cut off is not dark while its writers get in by another one', async () => {
  const [cut, pooler] = [await proxy(), await startSessionPooler({ target: { port: f.server.port }, mode: 'transaction' })]
  ends.push(async () => await pooler.stop())
  const operator = at(f.region.database.operator, cut.port)
  const whole = await look({ operator })
  expect(whole.dark.observed).toBe('this host reached its database just now')
  cut.cut('back')
  const byWriter = await look({ operator })
  expect(byWriter.dark).toMatchObject({ verdict: 'fail', observed: 'this host via writer app_writer reached its database just now' })
  expect(byWriter.tookMs).toBeLessThan(PATIENCE_MS + 1_000)
  const [writer] = f.region.database.writers
  const writers = writer === undefined ? [] : [{ ...at(writer, cut.port), role: writer.role }]
  const byPooler = await look({ operator, writers, endpoints: [endpoint('pooler', 'bouncer', pooler.port)] })
  expect(byPooler.dark).toMatchObject({ verdict: 'fail', observed: 'this host via pooler bouncer reached its database just now' })
  // The same address is one way, whoever goes it.
  expect(byPooler.vantage.own).toEqual([
    'this host: database does not answer within 1.5 s',
    'this host via pooler bouncer: database answers',
    'this host: Kafka does not answer: region-a Kafka cannot be reached',
  ])
  const none = await look({ operator, writers })
  expect(none.dark.verdict).toBe('pass')
})

test('a pooler that answers for itself is no sight of the database behind it', async () => {
  const [dead = 0, closed = 0] = await freePorts(2)
  const pooler = await startSessionPooler({ target: { port: dead }, mode: 'transaction' })
  ends.push(async () => await pooler.stop())
  const operator = at(f.region.database.operator, closed)
  const { dark, vantage } = await look({
    operator,
    writers: f.region.database.writers.map(w => ({ ...at(w, closed), role: w.role })),
    endpoints: [endpoint('pooler', 'bouncer', pooler.port)],
  })
  expect(vantage.own[1]).toMatch(/^this host via pooler bouncer: database does not answer: /)
  expect(dark.verdict).toBe('pass')
})

test('whoever says no is there: a wrong password, and a secret that nobody can read while the region is asked all the same', async () => {
  const wrong = await look({}, () => Promise.resolve('not the password'))
  expect(wrong.vantage.own[0]).toMatch(/^this host: database answers: password authentication failed/)
  expect(wrong.dark.verdict).toBe('fail')
  const unread = () => Promise.reject(new HomeregionError('secret-unavailable', { fact: 'the vault does not answer' }))
  const unreadable = await look({}, unread)
  expect(unreadable.dark.verdict).toBe('fail')
  const [closed = 0] = await freePorts(1)
  const both = await look({ operator: at(f.region.database.operator, closed), writers: [] }, unread)
  expect(both.dark.verdict).toBe('pass')
  expect(JSON.stringify([wrong, unreadable, both])).not.toContain('not the password')
})

test('a standby shows its primary while that streams to it, and not when it is alone; promoted it is one itself', async () => {
  const other = await startRegion({ version: 15 })
  ends.push(async () => await other.stop())
  const standby = await startStandby(other.server, { version: 15, name: 'reader' })
  ends.push(async () => await standby.stop())
  const [closed = 0] = await freePorts(1)
  const operator = at(other.region.database.operator, closed)
  const seen = async () => await look({ operator, writers: [], endpoints: [endpoint('standby', 'reader', standby.server.port)] })
  expect(await waitUntil(async () => (await seen()).dark.verdict === 'fail', 20_000)).toBe(true)
  expect((await seen()).vantage.own[1]).toBe(
    'this host via standby reader: database a standby answers, and its primary still streams to it',
  )
  await killProcess(other.server.process)
  expect(await waitUntil(async () => (await seen()).dark.verdict === 'pass', 20_000)).toBe(true)
  expect((await seen()).vantage.own[1]).toBe(
    'this host via standby reader: database only a standby answers, and it receives nothing: it may hold what would be lost',
  )
  await standby.promote()
  expect((await seen()).dark.observed).toBe('this host via standby reader reached its database just now')
})
