import { setTimeout as wait } from 'node:timers/promises'
import type { Producer } from 'kafkajs'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { createBindings, deleteBinding } from '../../src/adapters/kafka-region/acl-bindings.ts'
import { openBrokers } from '../../src/adapters/kafka-region/broker-requests.ts'
import type { DenyBinding } from '../../src/adapters/kafka-region/deny-binding.ts'
import { protocolError } from '../../src/adapters/kafka-region/kafka-client.ts'
import { ensureTopics } from '../../src/adapters/kafka-region/topics.ts'
import type { FenceCause } from '../../src/domain/fence.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { type Cluster, createFence, fenceOf, follow, type KafkaScene, notesInMemory, startKafkaScene } from './kafka-fence-fixture.ts'

const CAUSE: FenceCause = { reason: 'a move', by: 'ada', runId: null }
let scene: KafkaScene

beforeAll(async () => {
  scene = await startKafkaScene()
})
afterAll(async () => await scene.stop())

test('a producer that writes without a pause is stopped by the time apply returns, and writes again after lift', async () => {
  const { topic, id } = await scene.prepare()
  const rules = await scene.rules()
  const writer = writeOn(await scene.producer('app'), topic)
  const { values, feed } = follow(scene.connection('reader'), topic)
  onTestFinished(async () => await feed.close())
  expect(await waitUntil(() => writer.acknowledged.length > 20 && values.length > 0, 40_000)).toBe(true)
  const notes = notesInMemory()
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notes)

  const lines = await fence.apply(CAUSE)
  const asked = writer.asked()
  const acknowledged = writer.acknowledged.length

  expect(lines).toContain(`DENY WRITE on topic ${topic} for User:app, broker 1`)
  expect(lines.join('\n')).toMatch(/User:app: \d+ writes refused by broker 1/)
  expect(notes.note).toMatchObject({ state: 'applied', cause: CAUSE })
  expect(verdicts(await fence.verify())).toEqual(['pass', 'pass', 'pass', 'pass'])
  expect(await waitUntil(() => writer.asked() > asked + 3, 10_000)).toBe(true)
  expect(writer.acknowledged.length).toBe(acknowledged)
  expect(writer.refusals).toContain('TOPIC_AUTHORIZATION_FAILED')
  expect(await fence.status()).toMatchObject({
    state: 'applied',
    cause: CAUSE,
    holds: expect.arrayContaining([`DENY WRITE on topic ${topic} for User:app`]) as string[],
  })
  // Who only reads goes on, and finds everything that was acknowledged.
  expect(await waitUntil(() => writer.acknowledged.every(v => values.includes(v)), 10_000)).toBe(true)

  await liftStanding(fence, CAUSE)
  expect(await scene.rules()).toEqual(rules)
  expect(notes.note).toBeNull()
  expect(await fence.status()).toMatchObject({ state: 'lifted', holds: [] })
  expect(await waitUntil(() => writer.acknowledged.length > acknowledged, 10_000)).toBe(true)
  await writer.stop()
})

test('what an open transaction wrote before the fence never becomes visible after it', async () => {
  const { topic, id } = await scene.prepare()
  const zombie = await scene.producer('app', id)
  const transaction = await zombie.transaction()
  await transaction.send({ topic, messages: [{ value: 'in an open transaction' }] })
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notesInMemory())

  const lines = await fence.apply(CAUSE)

  expect(lines.join('\n')).toMatch(new RegExp(`transactional id ${id}: taken over, producer \\d+, epoch \\d+`))
  await expect(transaction.commit()).rejects.toThrow()
  expect(verdicts(await fence.verify())).toEqual(['pass', 'pass', 'pass', 'pass'])
  await liftStanding(fence, CAUSE)
  const successor = await scene.producer('app', id)
  const next = await successor.transaction()
  await next.send({ topic, messages: [{ value: 'from its successor' }] })
  await next.commit()
  const { values, feed } = follow(scene.connection('reader'), topic)
  expect(await waitUntil(() => values.length > 0, 10_000)).toBe(true)
  expect(values).toEqual(['from its successor'])
  await feed.close()
})

test('a producer that slept through the fence and its lifting is a zombie, although it may write again', async () => {
  const { topic, id } = await scene.prepare()
  const sleeper = await scene.producer('app', id)
  const transaction = await sleeper.transaction()
  await transaction.send({ topic, messages: [{ value: 'before it slept' }] })
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notesInMemory())
  await fence.apply(CAUSE)
  await liftStanding(fence, CAUSE)
  const late = await transaction.send({ topic, messages: [{ value: 'after it woke' }] }).catch((error: unknown) => protocolError(error))
  expect(late).toBe('INVALID_PRODUCER_EPOCH')
})

test('a transaction of an id that the configuration does not name is no proof, and says so', async () => {
  const { topic, id } = await scene.prepare()
  const producer = await scene.producer('app', id)
  const transaction = await producer.transaction()
  await transaction.send({ topic, messages: [{ value: 'undeclared' }] })
  const config = scene.config(fenceOf(scene, topic, []), topic, c => ({ ...c, policy: { ...c.policy, callTimeoutMs: 1500 } }))
  const notes = notesInMemory()
  const fence = createFence(config, notes)

  const error = await fence.apply(CAUSE).then(
    () => null,
    (e: unknown) => e,
  )

  expect(error).toMatchObject({
    code: 'fence-failed',
    text: { fact: expect.stringContaining('a transaction is open') as string, state: expect.stringContaining('1 of 1') as string },
  })
  expect(notes.note?.state).toBe('applying')
  // Named, the same verb finishes it.
  const named = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notes)
  await named.apply(CAUSE)
  expect(verdicts(await named.verify())).toEqual(['pass', 'pass', 'pass', 'pass'])
  await liftStanding(named, CAUSE)
  await transaction.abort().catch(() => undefined)
})

test('a writer that the fence does not name is seen by the moving end', async () => {
  const { topic, id } = await scene.prepare()
  const writer = writeOn(await scene.producer('stranger'), topic)
  await waitUntil(() => writer.acknowledged.length > 5, 10_000)
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notesInMemory())
  await expect(fence.apply(CAUSE)).rejects.toMatchObject({
    code: 'fence-failed',
    text: { fact: expect.stringContaining('somebody still writes') as string },
  })
  await writer.stop()
  await fence.apply(CAUSE)
  await liftStanding(fence, CAUSE)
})

test('before it is applied the proof fails, and its probes leave nothing in the topic', async () => {
  const { topic, id } = await scene.prepare()
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notesInMemory())
  const observations = await fence.verify()
  expect(verdicts(observations)).toEqual(['fail', 'fail', 'pass', 'pass'])
  expect(observations[1]?.observed).toContain('User:app may still')
  expect(observations[2]?.observed).toContain(`${topic}/0 at 0`)
  const unprobed = fenceOf(scene, topic, [id], { producers: [{ principal: 'User:app', login: null, transactionalIds: [id] }] })
  const other = createFence(scene.config(unprobed, topic), notesInMemory())
  expect((await other.verify())[1]).toMatchObject({ verdict: 'unknown' })
})

test('the first rule of a topic or transactional id is refused before anything is changed', async () => {
  const topic = 'bare'
  await ensureTopics(scene.connection('admin'), [{ topic }])
  const rules = await scene.rules()
  const notes = notesInMemory()
  const fence = createFence(scene.config(fenceOf(scene, topic, [], { admin: scene.login('admin') }), topic), notes)
  const refusal = {
    code: 'fence-failed',
    text: { state: 'Nothing was changed.', fact: expect.stringContaining(`topic ${topic} has no access rule`) as string },
  }
  await expect(fence.apply(CAUSE)).rejects.toMatchObject(refusal)
  await expect(fence.plan('apply')).rejects.toMatchObject(refusal)
  expect(notes.note).toBeNull()
  expect(await scene.rules()).toEqual(rules)
})

test('a DENY that stood before the fence stays when it is lifted', async () => {
  const { topic, id } = await scene.prepare()
  const before: DenyBinding = { resource: 'topic', name: topic, principal: 'User:app' }
  await onCluster('region-a', async brokers => await createBindings(brokers, [before]))
  const rules = await scene.rules()
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notesInMemory())
  expect((await fence.apply(CAUSE))[0]).toContain('stood before')
  await fence.apply(CAUSE)
  const lines = await liftStanding(fence, CAUSE)
  expect(await scene.rules()).toEqual(rules)
  expect(lines).toContain(`left: DENY WRITE on topic ${topic} for User:app, stood before the fence`)
  await liftStanding(fence, CAUSE)
  expect(await scene.rules()).toEqual(rules)
})

test('a DENY on record that the configuration could not have made is not deleted: named, and the rest is lifted', async () => {
  const [{ topic, id }, other] = [await scene.prepare(), await scene.prepare()]
  const strangers: DenyBinding = { resource: 'topic', name: other.topic, principal: 'User:stranger' }
  await onCluster('region-a', async brokers => await createBindings(brokers, [strangers]))
  const rules = await scene.rules()
  const notes = notesInMemory()
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notes)
  await fence.apply(CAUSE)
  const former = notes.note?.former as { readonly added: readonly DenyBinding[] }
  if (notes.note !== null) notes.note = { ...notes.note, former: { ...former, added: [...former.added, strangers] } }
  await expect(liftStanding(fence, CAUSE)).rejects.toMatchObject({
    code: 'fence-failed',
    text: { fact: expect.stringContaining(`DENY WRITE on topic ${other.topic} for User:stranger`) as string },
  })
  expect(await scene.rules()).toEqual(rules)
  await onCluster('region-a', async brokers => await deleteBinding(brokers, strangers))
  await liftStanding(fence, CAUSE)
  expect(notes.note).toBeNull()
})

test('a DENY that somebody took away is missing in status and proof, and apply brings it back', async () => {
  const { topic, id } = await scene.prepare()
  const rules = await scene.rules()
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notesInMemory())
  await fence.apply(CAUSE)
  await onCluster('region-a', async brokers => await deleteBinding(brokers, { resource: 'topic', name: topic, principal: 'User:app' }))
  expect(await fence.status()).toMatchObject({
    state: 'applying',
    holds: expect.arrayContaining([`missing: DENY WRITE on topic ${topic} for User:app`]) as string[],
  })
  expect(verdicts(await fence.verify())).toEqual(['fail', 'fail', 'pass', 'pass'])
  await fence.apply(CAUSE)
  expect(verdicts(await fence.verify())).toEqual(['pass', 'pass', 'pass', 'pass'])
  await liftStanding(fence, CAUSE)
  expect(await scene.rules()).toEqual(rules)
})

test('a copy of the DENY on another region’s cluster fails the proof; what stood there before does not', async () => {
  const { topic, id } = await scene.prepare()
  const config = scene.config(fenceOf(scene, topic, [id]), topic)
  const fence = createFence(config, notesInMemory())
  await fence.apply(CAUSE)
  const copy: DenyBinding = { resource: 'topic', name: topic, principal: 'User:app' }
  await onCluster('region-b', async brokers => await createBindings(brokers, [copy]))
  const [, , , travelled] = await fence.verify()
  expect(travelled).toMatchObject({
    verdict: 'fail',
    observer: 'region-b Kafka',
    observed: expect.stringContaining('sync.topic.acls.enabled') as string,
  })
  await liftStanding(fence, CAUSE)
  await fence.apply(CAUSE)
  expect(verdicts(await fence.verify())).toEqual(['pass', 'pass', 'pass', 'pass'])
  await liftStanding(fence, CAUSE)
})

test('another cluster that cannot be read is unknown where a mirror could copy, and said where none can', async () => {
  const { topic, id } = await scene.prepare()
  for (const [mirror, verdict] of [
    ['mirrormaker', 'unknown'],
    ['none', 'pass'],
  ] as const) {
    const config = scene.config(fenceOf(scene, topic, [id]), topic, c => ({
      ...c,
      transport: { ...c.transport, mirror },
      regions: c.regions.map(r => (r.name === 'region-b' ? { ...r, kafka: { ...r.kafka, brokers: ['127.0.0.1:1'] } } : r)),
    }))
    const fence = createFence(config, notesInMemory())
    await fence.apply(CAUSE)
    expect((await fence.verify())[3]).toMatchObject({ verdict, observed: expect.stringContaining('not read') as string })
    await liftStanding(fence, CAUSE)
  }
})

test('a fence that would stop more than its region’s producers is refused before anything is changed', async () => {
  const { topic, id } = await scene.prepare()
  const rules = await scene.rules()
  const onOneCluster = scene.config(fenceOf(scene, topic, [id]), topic, c => ({
    ...c,
    regions: c.regions.map(r => (r.name === 'region-b' ? { ...r, kafka: { ...r.kafka, ...scene.connection('operator').login } } : r)),
  }))
  const ownLogin = scene.config(fenceOf(scene, topic, [id], { admin: scene.login('app') }), topic)
  const everything = scene.config(fenceOf(scene, topic, ['*']), topic)
  for (const config of [onOneCluster, ownLogin, everything]) {
    const notes = notesInMemory()
    await expect(createFence(config, notes).apply(CAUSE)).rejects.toMatchObject({
      code: 'fence-failed',
      text: { state: 'Nothing was changed.' },
    })
    expect(notes.note).toBeNull()
  }
  expect(await scene.rules()).toEqual(rules)
})

test('a login without the rights, a topic that is not there and a wrong secret change nothing', async () => {
  const { topic, id } = await scene.prepare()
  const rules = await scene.rules()
  const cases = [
    ['privilege-missing', fenceOf(scene, topic, [id], { admin: scene.login('reader') }), topic],
    ['privilege-missing', fenceOf(scene, 'nowhere', [id]), 'nowhere'],
    ['fence-failed', fenceOf(scene, 'nowhere', [id], { admin: scene.login('admin') }), 'nowhere'],
    [
      'kafka-unreachable',
      fenceOf(scene, topic, [id], { admin: { ...scene.login('operator'), password: { file: `${scene.dir}/reader` } } }),
      topic,
    ],
  ] as const
  for (const [code, fence, outbox] of cases) {
    const notes = notesInMemory()
    await expect(createFence(scene.config(fence, outbox), notes).apply(CAUSE)).rejects.toMatchObject({
      code,
      text: { state: 'Nothing was changed.' },
    })
    expect(notes.note).toBeNull()
  }
  expect(await scene.rules()).toEqual(rules)
})

test('the plan names every binding and call, and after it was carried out only what is left to do', async () => {
  const { topic, id } = await scene.prepare()
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notesInMemory())
  const planned = (await fence.plan('apply')).map(s => s.text)
  expect(planned.slice(0, 2)).toEqual([
    `CreateAcls DENY WRITE on topic ${topic} for User:app (literal, host *)`,
    `CreateAcls DENY WRITE on transactional id ${id} for User:app (literal, host *)`,
  ])
  expect(planned).toContain(`InitProducerId ${id}, twice`)
  expect(await fence.plan('lift')).toEqual([])
  await fence.apply(CAUSE)
  expect((await fence.plan('apply')).some(s => s.text.startsWith('CreateAcls'))).toBe(false)
  expect((await fence.plan('lift')).map(s => s.text).slice(0, 2)).toEqual([
    `DeleteAcls DENY WRITE on topic ${topic} for User:app (literal, host *)`,
    `DeleteAcls DENY WRITE on transactional id ${id} for User:app (literal, host *)`,
  ])
  await liftStanding(fence, CAUSE)
})

async function onCluster(cluster: Cluster, work: (brokers: Awaited<ReturnType<typeof openBrokers>>) => Promise<void>): Promise<void> {
  const brokers = await openBrokers(scene.connection('admin', cluster), ['none'])
  try {
    await work(brokers)
  } finally {
    await brokers.close()
  }
}

function verdicts(observations: readonly { readonly verdict: string }[]): readonly string[] {
  return observations.map(o => o.verdict)
}

/** Writes one numbered record after the other, whatever the broker says. */
function writeOn(producer: Producer, topic: string) {
  const acknowledged: string[] = []
  const refusals: string[] = []
  let [asked, stopped] = [0, false]
  const loop = async () => {
    while (!stopped) {
      asked += 1
      const value = String(asked)
      await producer.send({ topic, acks: -1, messages: [{ value }] }).then(
        () => acknowledged.push(value),
        (error: unknown) => refusals.push(protocolError(error) ?? String(error)),
      )
      await wait(1)
    }
  }
  const running = loop()
  return {
    acknowledged,
    refusals,
    asked: () => asked,
    stop: async () => {
      stopped = true
      await running
    },
  }
}
