import { afterAll, beforeAll, expect, test } from 'vitest'
import { killProcess } from '../../sandbox/processes.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { openBrokers } from '../../src/adapters/kafka-region/broker-requests.ts'
import { disconnect } from '../../src/adapters/kafka-region/kafka-client.ts'
import type { FenceCause } from '../../src/domain/fence.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { createFence, fenceOf, type KafkaScene, notesInMemory, startKafkaScene } from './kafka-fence-fixture.ts'

const CAUSE: FenceCause = { reason: 'a move', by: 'ada', runId: null }
let scene: KafkaScene

beforeAll(async () => {
  scene = await startKafkaScene()
})
afterAll(async () => await scene.stop())

test('a broker that is gone before the first change changes nothing; the proof and the status are unknown', {
  timeout: 120_000,
}, async () => {
  const { topic, id } = await scene.prepare()
  const notes = notesInMemory()
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notes)
  await scene.servers['region-a'].kill()
  await expect(fence.apply(CAUSE)).rejects.toMatchObject({ code: 'kafka-unreachable', text: { state: 'Nothing was changed.' } })
  expect(notes.note).toBeNull()
  expect((await fence.verify()).map(o => o.verdict)).toEqual(['unknown'])
  expect(await fence.status()).toMatchObject({ state: 'unknown' })
  await scene.restart('region-a')
  await fence.apply(CAUSE)
  await liftStanding(fence, CAUSE)
})

test('a broker that dies after the DENY was sent leaves an unknown outcome on record, which the same verb settles', {
  timeout: 120_000,
}, async () => {
  const { topic, id } = await scene.prepare()
  const rules = await scene.rules()
  const notes = notesInMemory()
  const config = scene.config(fenceOf(scene, topic, [id]), topic, c => ({ ...c, policy: { ...c.policy, callTimeoutMs: 1500 } }))
  const broken = createFence(config, notes, async point => {
    if (point === 'fence:kafka:denied') await killAll(scene)
  })
  await expect(broken.apply(CAUSE)).rejects.toMatchObject({
    code: 'outcome-unknown',
    text: { state: expect.stringContaining('may stand or not') as string },
  })
  expect(notes.note?.state).toBe('applying')
  await scene.restart('region-a')
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notes)
  expect(await fence.status()).toMatchObject({
    state: 'applying',
    holds: [`DENY WRITE on topic ${topic} for User:app`, `DENY WRITE on transactional id ${id} for User:app`],
  })
  await fence.apply(CAUSE)
  expect((await fence.verify()).map(o => o.verdict)).toEqual(['pass', 'pass', 'pass', 'pass'])
  await liftStanding(fence, CAUSE)
  expect(await scene.rules()).toEqual(rules)
})

test('every broker is read and probed by itself, and one that is away leaves the fence unproved until it is back', {
  timeout: 240_000,
}, async () => {
  const second = await scene.startSecond()
  const { id } = await scene.prepare()
  const { topic } = await scene.prepare()
  await spread(topic)
  const fence = createFence(scene.config(fenceOf(scene, topic, [id]), topic), notesInMemory())
  const lines = await fence.apply(CAUSE)
  expect(lines).toContain(`DENY WRITE on topic ${topic} for User:app, broker 1, 2`)
  expect(lines.join('\n')).toMatch(/writes refused by broker 1, 2/)
  expect((await fence.verify()).map(o => o.verdict)).toEqual(['pass', 'pass', 'pass', 'pass'])

  await killProcess(second)
  const away = async () => (await fence.verify())[0]
  expect(await away()).toMatchObject({ verdict: 'unknown', observed: expect.stringContaining('broker 2 was not read') as string })
  // Once the controller has noticed, the partitions have other leaders, and the copy it should hold still names it.
  expect(await eventually(async () => (await aliveOf(topic)).length === 1)).toBe(true)
  expect(await away()).toMatchObject({ verdict: 'unknown', observed: 'broker 2 was not read, stands on broker 1' })
  expect((await fence.status()).holds).toContain('broker 2: not read')

  await scene.startSecond()
  expect(await eventually(async () => (await aliveOf(topic)).length === 2)).toBe(true)
  expect(await eventually(async () => (await fence.verify()).every(o => o.verdict === 'pass'))).toBe(true)
  await liftStanding(fence, CAUSE)
})

async function killAll(of: KafkaScene): Promise<void> {
  await killProcess(of.processes().find(p => p.name === 'region-a') ?? of.servers['region-a'].process)
}

/** Gives the topic a copy on each broker. */
async function spread(topic: string): Promise<void> {
  const admin = (await scene.client('admin')).admin()
  await admin.connect()
  const partitionAssignment = [0, 1, 2].map(partition => ({ partition, replicas: partition === 1 ? [2, 1] : [1, 2] }))
  await admin.alterPartitionReassignments({ topics: [{ topic, partitionAssignment }], timeout: 10_000 })
  const settled = await eventually(async () => {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics.every(t => t.partitions.every(p => p.isr.length === 2 && p.replicas.length === 2))
  })
  await disconnect(admin)
  expect(settled).toBe(true)
}

async function aliveOf(topic: string): Promise<readonly number[]> {
  const brokers = await openBrokers(scene.connection('admin'), [topic])
  await brokers.close()
  return brokers.alive
}

async function eventually(condition: () => Promise<boolean>): Promise<boolean> {
  return await waitUntil(async () => await condition().catch(() => false), 40_000)
}
