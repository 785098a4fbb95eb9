import { beforeAll, describe, expect, test } from 'vitest'
import type { Acknowledged } from '../../sandbox/load.ts'
import { useRig } from '../rig/use-rig.ts'
import { acknowledgedAt, createScene, type Scene, sideBySide } from './crash-scene.ts'

// The command is killed (-9) at every point where its journal or a region stands between two states, while a service writes; another
// process then resumes, or aborts. Keys are named after the pass and the point, so that a finding says where it comes from.
const PREFIX = `crash-point-${Date.now().toString(36)}-`
const WIDTH = 3
// A bound for a busy machine; a quiet one takes a tenth of it.
const PASS_MS = 900_000

const rig = useRig()
let scene: Scene
let points: readonly { readonly n: number; readonly name: string }[] = []
const acks: Acknowledged[] = []

beforeAll(async () => {
  scene = await createScene(rig.current)
  await scene.register([`${PREFIX}count`])
  const counted = await scene.transfer(`${PREFIX}count`, 'region-b', 'count')
  expect(counted.code, counted.stderr).toBe(0)
  // Whether a catch-up has a commit of its own depends on how long it takes: its points are not passed by every move.
  points = pointsIn(counted.stderr).filter(p => !p.name.startsWith('catch-up:'))
})

function pointsIn(text: string): readonly { n: number; name: string }[] {
  return [...text.matchAll(/^fault-point (\d+) (\S+)$/gm)].map(m => ({ n: Number(m[1]), name: m[2] ?? '' }))
}

const keyOf = (pass: string, { n, name }: { n: number; name: string }) => `${PREFIX}${pass}-${n}-${name.replace(':', '-')}`

/** Loads one key while `work` runs, and keeps what was acknowledged for the recorder. */
async function underLoad(key: string, work: (load: ReturnType<typeof rig.current.load>) => Promise<void>): Promise<void> {
  // Few at a time: a write that nobody may admit is sent again every few milliseconds.
  const load = rig.current.load({ tenants: [key], ratePerSecond: 10, concurrency: 3 })
  try {
    await acknowledgedAt(load, 'region-a', 1, 0)
    await work(load)
  } finally {
    await load.stop()
    acks.push(...load.acks)
  }
}

/** Starts a move that dies at the point of this name; returns its run. */
async function killedAt(key: string, name: string): Promise<string> {
  const killed = await scene.transfer(key, 'region-b', `kill@${name}`)
  expect(killed.signal, `${killed.stdout}${killed.stderr}`).toBe('SIGKILL')
  const run = /run (run-\w+)/.exec(killed.stderr)?.[1]
  if (run === undefined) throw new Error(`no run was named:\n${killed.stderr}`)
  return run
}

async function expectMoved(key: string): Promise<void> {
  expect(await scene.record(key)).toEqual({ home: 'region-b', state: 'ACTIVE', epoch: 2 })
  expect((await scene.log(key)).map(l => l.transition)).toEqual(['register', 'drain', 'fence', 'catch-up', 'activate'])
  expect(await scene.barriers(key)).toEqual(new Map([[1, 1]]))
  expect(await scene.admitting(key)).toEqual(['region-b'])
  expect(await scene.openRun(key)).toBeNull()
}

async function expectBack(key: string, epoch: number): Promise<void> {
  expect(await scene.record(key)).toEqual({ home: 'region-a', state: 'ACTIVE', epoch })
  const transitions = (await scene.log(key)).map(l => l.transition)
  expect(new Set(transitions).size, transitions.join(', ')).toBe(transitions.length)
  expect(await scene.barriers(key)).toEqual(epoch === 1 ? new Map() : new Map([[1, 1]]))
  expect(await scene.admitting(key)).toEqual(['region-a'])
  expect(await scene.openRun(key)).toBeNull()
}

describe('a move that is killed at any point', () => {
  test('has points before, between and after its changes', () => {
    const names = points.map(p => p.name)
    for (const name of [
      'open-run:after',
      'drain-start:before',
      'drain:applied',
      'fence:applied',
      'activate:before',
      'activate:after',
      'close:after',
    ])
      expect(names).toContain(name)
  })

  test(
    'is finished by resume, with the end state of a move that was never interrupted',
    async () => {
      await scene.register(points.map(p => keyOf('resume', p)))
      await sideBySide(
        points,
        WIDTH,
        ({ n, name }) => `killed at ${n} ${name}`,
        async point => {
          const key = keyOf('resume', point)
          await underLoad(key, async load => {
            const run = await killedAt(key, point.name)
            expect((await scene.admitting(key)).length).toBeLessThanOrEqual(1)
            const open = await scene.openRun(key)
            const resumed = await scene.resume(run, key)
            expect(resumed.code, `${resumed.stdout}${resumed.stderr}`).toBe(open === null ? 5 : 0)
            await expectMoved(key)
            await acknowledgedAt(load, 'region-b', 2, performance.now())
          })
        },
      )
    },
    PASS_MS,
  )

  test(
    'goes back by abort while ownership was not handed over, and only forward after it',
    async () => {
      await scene.register(points.map(p => keyOf('abort', p)))
      await sideBySide(
        points,
        WIDTH,
        ({ n, name }) => `killed at ${n} ${name}`,
        async point => {
          const key = keyOf('abort', point)
          await underLoad(key, async load => {
            const run = await killedAt(key, point.name)
            expect((await scene.admitting(key)).length).toBeLessThanOrEqual(1)
            const before = await scene.record(key)
            const fenced = (await scene.boundaryState('region-a', key)) === 'FENCED'
            const open = await scene.openRun(key)
            const aborted = await scene.abort(run)
            const said = `${aborted.stdout}${aborted.stderr}`
            if (open === null) {
              expect(aborted.code, said).toBe(5)
              await expectMoved(key)
            } else if (before.home === 'region-b') {
              expect(aborted.code, said).toBe(7)
              expect(said).toContain(`homeregion resume ${run}`)
              const resumed = await scene.resume(run, key)
              expect(resumed.code, `${resumed.stdout}${resumed.stderr}`).toBe(0)
              await expectMoved(key)
            } else {
              expect(aborted.code, said).toBe(0)
              await expectBack(key, fenced ? 2 : 1)
              await acknowledgedAt(load, 'region-a', fenced ? 2 : 1, performance.now())
            }
          })
        },
      )
    },
    PASS_MS,
  )

  test(
    'survives a resume that is itself killed at each of its points',
    async () => {
      const from = points.filter(p => ['open-run:after', 'drain:applied', 'fence:applied', 'activate:after'].includes(p.name))
      await scene.register(from.map(p => keyOf('resume-again', p)))
      await sideBySide(
        from,
        WIDTH,
        ({ n, name }) => `killed at ${n} ${name}`,
        async point => {
          const key = keyOf('resume-again', point)
          await underLoad(key, async load => {
            const run = await killedAt(key, point.name)
            await untilNotKilled(key, async fault => await scene.resume(run, key, fault), [0, 5])
            await expectMoved(key)
            await acknowledgedAt(load, 'region-b', 2, performance.now())
          })
        },
      )
    },
    PASS_MS,
  )

  test(
    'survives an abort that is itself killed at each of its points',
    async () => {
      const from = points.filter(p => ['drain:applied', 'fence:applied', 'activate:before'].includes(p.name))
      await scene.register(from.map(p => keyOf('abort-again', p)))
      await sideBySide(
        from,
        WIDTH,
        ({ n, name }) => `killed at ${n} ${name}`,
        async point => {
          const key = keyOf('abort-again', point)
          await underLoad(key, async load => {
            const run = await killedAt(key, point.name)
            const fenced = (await scene.boundaryState('region-a', key)) === 'FENCED'
            await untilNotKilled(key, async fault => await scene.abort(run, fault), [0, 5])
            await expectBack(key, fenced ? 2 : 1)
            await acknowledgedAt(load, 'region-a', fenced ? 2 : 1, performance.now())
          })
        },
      )
    },
    PASS_MS,
  )

  test('loses and doubles no acknowledged write, and leaves no gap, overlap or skipped epoch', async () => {
    await scene.caughtUp(PREFIX)
    const { acknowledged, ...findings } = await rig.current.verify(acks)
    expect(acknowledged).toBeGreaterThan(points.length)
    const own = Object.entries(findings).flatMap(([kind, lines]) => lines.filter(l => l.includes(PREFIX)).map(l => `${kind}: ${l}`))
    expect(own).toEqual([])
  }, 60_000)
})

/** The first process dies at its first point, the next at its second, and so on until one lives to its end (5: the run is closed). */
async function untilNotKilled(
  key: string,
  command: (fault: string) => ReturnType<Scene['resume']>,
  codes: readonly number[],
): Promise<void> {
  for (let m = 1; m <= 40; m += 1) {
    const done = await command(`kill@${m}`)
    expect((await scene.admitting(key)).length).toBeLessThanOrEqual(1)
    if (done.signal === 'SIGKILL') continue
    expect(codes, `${done.stdout}${done.stderr}`).toContain(done.code)
    return
  }
  throw new Error(`${key} was killed 40 times`)
}
