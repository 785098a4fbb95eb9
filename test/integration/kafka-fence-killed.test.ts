import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { FenceCause } from '../../src/domain/fence.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { createFence, fenceOf, type KafkaScene, startKafkaScene } from './kafka-fence-fixture.ts'
import { notesInFile, runFence } from './kafka-fence-process.ts'

const CAUSE: FenceCause = { reason: 'a move', by: 'ada', runId: null }
let scene: KafkaScene

beforeAll(async () => {
  scene = await startKafkaScene()
})
afterAll(async () => await scene.stop())

/** What every process that applies or lifts this fence passes: two bindings, one transactional id. */
const APPLY = ['noted', 'denied', 'read-back', 'between-takeovers', 'taken-over', 'proved'].map(p => `fence:kafka:${p}`)
const LIFT = ['lift-noted', 'undenied', 'undenied', 'lift-read-back'].map(p => `fence:kafka:${p}`)

async function prepared() {
  const { topic, id } = await scene.prepare()
  const config = scene.config(fenceOf(scene, topic, [id]), topic)
  const notes = join(scene.dir, `${topic}.note`)
  return { config, notes, fence: createFence(config, notesInFile(notes)), rules: await scene.rules() }
}

test('the points where a process can be killed are between any two calls', async () => {
  const { config, notes, rules } = await prepared()
  expect(await runFence({ verb: 'apply', config, notes }, 'count')).toEqual({ ended: 'done', points: APPLY })
  expect(await runFence({ verb: 'lift', config, notes }, 'count')).toEqual({ ended: 'done', points: LIFT })
  expect(await scene.rules()).toEqual(rules)
})

test.each(APPLY.map((point, i) => [point, i + 1] as const))(
  'killed at %s, apply finishes it and lift brings back what was',
  async (_, at) => {
    const { config, notes, fence, rules } = await prepared()
    expect((await runFence({ verb: 'apply', config, notes }, `kill@${at}`)).ended).toBe('killed')
    expect((await fence.status()).state).toBe('applying')
    await fence.apply(CAUSE)
    expect((await fence.verify()).map(o => o.verdict)).toEqual(['pass', 'pass', 'pass', 'pass'])
    await liftStanding(fence, CAUSE)
    expect(await scene.rules()).toEqual(rules)
  },
)

test.each(APPLY.map((point, i) => [point, i + 1] as const))('killed at %s, lift alone brings back what was', async (_, at) => {
  const { config, notes, fence, rules } = await prepared()
  expect((await runFence({ verb: 'apply', config, notes }, `kill@${at}`)).ended).toBe('killed')
  await liftStanding(fence, CAUSE)
  expect(await scene.rules()).toEqual(rules)
  expect((await fence.status()).state).toBe('lifted')
})

test.each(LIFT.map((point, i) => [point, i + 1] as const))('killed at %s, lift finishes it, and apply closes it again', async (_, at) => {
  const { config, notes, fence, rules } = await prepared()
  await fence.apply(CAUSE)
  expect((await runFence({ verb: 'lift', config, notes }, `kill@${at}`)).ended).toBe('killed')
  expect((await fence.status()).state).toBe('lifting')
  await fence.apply(CAUSE)
  expect((await fence.verify()).map(o => o.verdict)).toEqual(['pass', 'pass', 'pass', 'pass'])
  expect((await runFence({ verb: 'lift', config, notes }, `kill@${at}`)).ended).toBe('killed')
  await liftStanding(fence, CAUSE)
  expect(await scene.rules()).toEqual(rules)
})
