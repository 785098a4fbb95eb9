import { beforeAll, describe, expect, test } from 'vitest'
import { REGIONS, type SandboxRegion } from '../../sandbox/layout.ts'
import type { Load } from '../../sandbox/load.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { useRig } from '../rig/use-rig.ts'
import { createScene, type Scene } from './crash-scene.ts'
import { createRandom, type Random } from './random.ts'
import { createWritersWatch } from './writers-watch.ts'

// Keys move back and forth while they are written; about a third of the commands is killed (-9) somewhere, and another process resumes or
// aborts. The choices follow from the seed, the interleaving does not.
const SEED = Number(process.env['HOMEREGION_SEED'] ?? 20261129)
// Two hundred take more than three minutes; the suite has to stay short enough to be run.
const MOVES = Number(process.env['HOMEREGION_MOVES'] ?? 80)
const KEYS = 12
const LANES = 3
const PREFIX = `random-${Date.now().toString(36)}-`
// Four minutes on two quiet cores; a busy machine gets more before it is called stuck.
const TEST_MS = 720_000

const rig = useRig()
let scene: Scene

beforeAll(async () => {
  scene = await createScene(rig.current)
})

type Tally = Record<'moved' | 'rolledBack' | 'refused' | 'killed' | 'resumed' | 'aborted' | 'forward' | 'killedAgain' | 'paused', number>

/** Events of a key that its former home had written when it had given the key away. */
type Given = { readonly key: string; readonly region: SandboxRegion; readonly epoch: number; readonly events: number }

describe(`${MOVES} moves at random under load, a third of them killed`, () => {
  test(
    'lose nothing, double nothing, and never open two regions',
    async () => {
      console.info(`HOMEREGION_SEED=${SEED}`)
      const keys = Array.from({ length: KEYS }, (_, i) => `${PREFIX}${i + 1}`)
      await scene.register(keys)
      // One writer a key: a write that nobody may admit is sent again every few milliseconds.
      const loads = keys.map(key => rig.current.load({ tenants: [key], ratePerSecond: 5, concurrency: 1 }))
      const watch = await createWritersWatch(rig.current, keys)
      const pauses = pauseServices(createRandom(SEED, 'pauses'))
      const world: World = { free: new Set(keys), left: MOVES, tally: noTally(), given: [] }
      try {
        await Promise.all(Array.from({ length: LANES }, async (_, lane) => await drive(world, createRandom(SEED, `lane ${lane}`))))
      } finally {
        world.tally.paused = await pauses.stop()
        await watch.stop()
        await Promise.all(loads.map(async load => await load.stop()))
      }
      console.info(JSON.stringify({ ...world.tally, acknowledged: acksOf(loads).length, probes: watch.rounds() }))
      expect(watch.overlaps()).toEqual([])
      await expectInvariants(keys, loads, world)
    },
    TEST_MS,
  )
})

type World = { readonly free: Set<string>; left: number; readonly tally: Tally; readonly given: Given[] }

async function drive(world: World, random: Random): Promise<void> {
  while (world.left > 0) {
    const taken = await takeKeys(world, random)
    try {
      await moveOnce(world, random, taken.keys, taken.target)
    } finally {
      for (const key of taken.keys) world.free.add(key)
    }
  }
}

/** One to three keys that are at home in the same region and that no other lane has. */
async function takeKeys(world: World, random: Random): Promise<{ keys: readonly string[]; target: SandboxRegion }> {
  const first = random.pick([...world.free])
  world.free.delete(first)
  const { home } = await scene.record(first)
  const wanted = Math.min(world.left, 1 + random.below(3))
  const keys = [first]
  for (const key of [...world.free]) {
    if (keys.length >= wanted) break
    // Another lane may have taken it while this one was asking for the home of the one before.
    if (!world.free.delete(key)) continue
    if ((await scene.record(key)).home === home) keys.push(key)
    else world.free.add(key)
  }
  world.left -= keys.length
  return { keys, target: home === 'region-a' ? 'region-b' : 'region-a' }
}

async function moveOnce(world: World, random: Random, keys: readonly string[], target: SandboxRegion): Promise<void> {
  const { tally } = world
  const before = await Promise.all(keys.map(async key => ({ key, ...(await scene.record(key)) })))
  // Half of the deaths at a point between two states, half at any moment at all.
  const kill = random.chance(1 / 3)
    ? random.chance(0.5)
      ? { point: 1 + random.below(16 * keys.length) }
      : { afterMs: random.below(900) }
    : {}
  const started = scene.startTransfer(keys, target, 'point' in kill ? `kill@${kill.point}` : undefined)
  if ('afterMs' in kill) await killAfter(started, kill.afterMs)
  const done = await started.done
  if (done.signal === 'SIGKILL') {
    tally.killed += 1
    await settle(world, random, keys, before)
  } else {
    const outcome = done.code === 0 ? 'moved' : done.code === 6 ? 'rolledBack' : done.code === 3 ? 'refused' : null
    if (outcome === null) throw new Error(`transfer of ${keys.join(', ')} ended with ${done.code}:\n${done.stdout}${done.stderr}`)
    tally[outcome] += 1
  }
  for (const { key, home, epoch } of before) {
    const now = await scene.record(key)
    expect(now.state, key).toBe('ACTIVE')
    expect(now.epoch - epoch, key).toBeLessThanOrEqual(1)
    if (now.home !== home) world.given.push({ key, region: home, epoch, events: await scene.eventsWritten(home, key, epoch) })
  }
}

/** Killed once its run is open: before that there is nothing to resume. */
async function killAfter(started: ReturnType<Scene['startTransfer']>, afterMs: number): Promise<void> {
  await started.waitFor(/run run-\w+/, 60_000).catch(() => undefined)
  await new Promise(resolve => setTimeout(resolve, afterMs))
  started.child.kill('SIGKILL')
}

/** Somebody else settles what the dead command left: resume, or abort and, where that is too late, resume. */
async function settle(
  world: World,
  random: Random,
  keys: readonly string[],
  before: readonly { key: string; home: SandboxRegion }[],
): Promise<void> {
  const { tally } = world
  const [key = ''] = keys
  for (const k of keys) expect((await scene.admitting(k)).length, k).toBeLessThanOrEqual(1)
  const run = await scene.openRunOf(keys)
  if (run === null) return
  const again = random.chance(0.25) ? `kill@${1 + random.below(12)}` : undefined
  let abort = random.chance(0.4)
  for (let fault = again; ; fault = undefined) {
    const done = abort ? await scene.abort(run, fault) : await scene.resumeAll(run, keys, fault)
    if (done.signal === 'SIGKILL') {
      tally.killedAgain += 1
      if ((await scene.openRunOf(keys)) === null) return
      continue
    }
    const said = `${abort ? 'abort' : 'resume'} of ${run} (${keys.join(', ')}) ended with ${done.code}:\n${done.stdout}${done.stderr}`
    if (abort && done.code === 7) {
      // Handed over already: the one documented way is forward.
      expect(done.stdout + done.stderr, said).toContain(`homeregion resume ${run}`)
      tally.forward += 1
      abort = false
      continue
    }
    expect(abort ? [0] : [0, 3, 6], said).toContain(done.code)
    tally[abort ? 'aborted' : 'resumed'] += 1
    expect(await scene.openRun(key), said).toBeNull()
    if (!abort && done.code === 0 && keys.length === 1) expect((await scene.record(key)).home, said).not.toBe(before[0]?.home)
    return
  }
}

/** Suspends one service now and then: sometimes for so long that its callers give up and ask the other region. */
function pauseServices(random: Random): { stop(): Promise<number> } {
  const services = rig.current.running.services
  let stopping = false
  let paused = 0
  const wait = async (ms: number) => await waitUntil(() => stopping, ms)
  const loop = async () => {
    while (!stopping) {
      await wait(2000 + random.below(4000))
      if (stopping) return
      const { pid } = random.pick(services).process
      process.kill(pid, 'SIGSTOP')
      try {
        paused += 1
        await wait(random.chance(0.3) ? 2200 : 50 + random.below(500))
      } finally {
        process.kill(pid, 'SIGCONT')
      }
    }
  }
  const running = loop()
  return {
    stop: async () => {
      stopping = true
      await running
      return paused
    },
  }
}

async function expectInvariants(keys: readonly string[], loads: readonly Load[], world: World): Promise<void> {
  await scene.caughtUp(PREFIX)
  for (const key of keys) {
    expect(await scene.openRun(key), key).toBeNull()
    expect((await scene.admitting(key)).length, key).toBe(1)
    const log = await scene.log(key)
    const epochs = log.filter((line, i) => i === 0 || line.epoch !== log[i - 1]?.epoch).map(line => line.epoch)
    expect(epochs, key).toEqual(epochs.map((_, i) => i + 1))
    // One barrier for each fence that took effect, and no second one for a repeated one.
    const fences = log.filter(line => line.transition === 'fence').map(line => line.epoch)
    expect(await scene.barriers(key), key).toEqual(new Map(fences.map(epoch => [epoch, 1])))
  }
  for (const { key, region, epoch, events } of world.given)
    expect(await scene.eventsWritten(region, key, epoch), `late events of ${key} at ${region} under epoch ${epoch}`).toBe(events)
  const { acknowledged, ...findings } = await rig.current.verify(acksOf(loads))
  expect(acknowledged).toBeGreaterThan(MOVES)
  expect(Object.entries(findings).flatMap(([kind, lines]) => lines.filter(l => l.includes(PREFIX)).map(l => `${kind}: ${l}`))).toEqual([])
  expect(world.tally.killed).toBeGreaterThan(MOVES / 20)
  for (const region of REGIONS) expect(world.given.some(g => g.region === region)).toBe(true)
}

function acksOf(loads: readonly Load[]) {
  return loads.flatMap(load => load.acks)
}

function noTally(): Tally {
  return { moved: 0, rolledBack: 0, refused: 0, killed: 0, resumed: 0, aborted: 0, forward: 0, killedAgain: 0, paused: 0 }
}
