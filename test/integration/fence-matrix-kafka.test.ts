import type { Producer } from 'kafkajs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { protocolError } from '../../src/adapters/kafka-region/kafka-client.ts'
import { isHomeregionError } from '../../src/domain/errors.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { expectDocumented, markdownTable } from './fences-document.ts'
import { createFence, fenceOf, follow, type KafkaScene, notesInMemory, startKafkaScene } from './kafka-fence-fixture.ts'

const CAUSE = { reason: 'a test', by: 'test', runId: null }
let scene: KafkaScene

beforeAll(async () => {
  scene = await startKafkaScene()
})
afterAll(async () => await scene.stop())

type Place = { readonly topic: string; readonly id: string }
/** Ready before the fence; writes, or ends what it began, once the fence stands. */
type Held = { readonly names: readonly string[]; finish(): Promise<unknown> }

const send = async (producer: Pick<Producer, 'send'>, topic: string, value: string) =>
  await producer.send({ topic, acks: -1, messages: [{ value }] })

async function plain(user: 'app' | 'stranger', idempotent: boolean): Promise<Producer> {
  const retry = { retries: 2, initialRetryTime: 20, maxRetryTime: 100 }
  const producer = (await scene.client(user)).producer({ idempotent, maxInFlightRequests: 1, allowAutoTopicCreation: false, retry })
  await producer.connect()
  return producer
}

const connected = (user: 'app' | 'stranger', idempotent: boolean) => async (place: Place) => {
  const producer = await plain(user, idempotent)
  await send(producer, place.topic, 'before')
  return { names: [`User:${user}`], finish: async () => await send(producer, place.topic, 'after') }
}

/** `undeclared`: the configuration names none of the transactional ids. */
type Writer = { readonly name: string; readonly undeclared?: boolean; readonly hold: (place: Place) => Promise<Held> }

const WRITERS: readonly Writer[] = [
  { name: 'plain producer, connected', hold: connected('app', false) },
  { name: 'idempotent producer, connected', hold: connected('app', true) },
  {
    name: 'producer that logs in afterwards',
    hold: async ({ topic }) => ({ names: ['User:app'], finish: async () => await send(await plain('app', false), topic, 'after') }),
  },
  {
    name: 'transactional producer, no transaction open',
    hold: async ({ topic, id }) => {
      const producer = await scene.producer('app', id)
      const first = await producer.transaction()
      await send(first, topic, 'before')
      await first.commit()
      return {
        names: [id],
        finish: async () => {
          const next = await producer.transaction()
          await send(next, topic, 'after')
          await next.commit()
        },
      }
    },
  },
  {
    name: 'open transaction, committed afterwards',
    hold: async ({ topic, id }) => {
      const transaction = await (await scene.producer('app', id)).transaction()
      await send(transaction, topic, 'after')
      return { names: [id], finish: async () => await transaction.commit() }
    },
  },
  {
    name: 'open transaction of an id that the configuration does not name',
    undeclared: true,
    hold: async ({ topic, id }) => {
      const transaction = await (await scene.producer('app', id)).transaction()
      await send(transaction, topic, 'after')
      return { names: [topic], finish: async () => await transaction.commit() }
    },
  },
  { name: 'producer of another principal, idle', hold: connected('stranger', false) },
]

const seen = new Map<string, string>()

test.each(WRITERS)('the Kafka fence lets no write of this kind through without a report: $name', async ({ name, undeclared, hold }) => {
  const place = await scene.prepare()
  const rules = await scene.rules()
  const held = await hold(place)
  const config = scene.config(fenceOf(scene, place.topic, undeclared === true ? [] : [place.id]), place.topic, c => ({
    ...c,
    // Waited out by the one transaction that does not end; a busy broker may need longer for the others.
    policy: { ...c.policy, callTimeoutMs: undeclared === true ? 3_000 : 15_000 },
  }))
  const fence = createFence(config, notesInMemory())
  const names = (text: string) => held.names.some(n => text.includes(n))
  const refused = await fence.apply(CAUSE).then(
    () => null,
    (error: unknown) => {
      if (!isHomeregionError(error)) throw error
      return error.text.fact
    },
  )
  let text: string
  if (refused !== null) {
    expect(names(refused), refused).toBe(true)
    text = 'the fence does not pass, and names it'
    await held.finish()
    await fence.apply(CAUSE)
    expect((await fence.verify()).filter(o => o.verdict !== 'pass')).toEqual([])
  } else {
    const observations = await fence.verify()
    expect(observations.filter(o => o.verdict !== 'pass')).toEqual([])
    const code = await held.finish().then(
      () => null,
      (error: unknown) => protocolError(error) ?? (error instanceof Error ? error.name : String(error)),
    )
    const told = observations.some(o => names(o.observed))
    text = code === null ? (told ? 'not stopped; reported: proof, allowed to write' : 'NOT STOPPED, NOT REPORTED') : `stopped (${code})`
    // The proof is looked at again before anybody is let write elsewhere: it names the principal as long as it may write.
    if (code === null) expect((await fence.verify()).some(o => names(o.observed))).toBe(true)
  }
  await liftStanding(fence, CAUSE)
  expect(await scene.rules()).toEqual(rules)
  const { values, feed } = follow(scene.connection('reader'), place.topic)
  await send(await plain('app', false), place.topic, 'end')
  expect(await waitUntil(() => values.includes('end'), 20_000)).toBe(true)
  await feed.close()
  // What the fence did not pass for was committed before it did.
  expect(values.includes('after')).toBe(refused !== null || text.startsWith('not stopped'))
  expect(text).not.toContain('NOT REPORTED')
  seen.set(name, text)
})

test('the table of Kafka in docs/FENCES.md is what was seen', () => {
  expectDocumented(
    'fences-kafka',
    markdownTable(
      ['producer', 'kafka'],
      WRITERS.map(({ name }) => [name, seen.get(name) ?? '?']),
    ),
  )
})
