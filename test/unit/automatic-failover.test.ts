import { describe, expect, it } from 'vitest'
import { automaticRegions, createAutomaticWatch } from '../../src/agent/automatic.ts'
import type { AutomaticFailover, AutomaticLook } from '../../src/agent/automatic-failover.ts'
import { createMetrics } from '../../src/agent/metrics.ts'
import type { Config, FenceConfig, RegionConfig } from '../../src/domain/config.ts'
import { createManualClock } from './engine-fixture.ts'

const READY: AutomaticLook = { kind: 'ready', target: 'region-b', keys: 3, lossMs: 900, staying: 1 }
const COOL_DOWN_MS = 60_000

type Automatic = Config['policy']['automatic']
type Lease = RegionConfig['lease']

function configOf(automatic: Automatic, lease: Lease = null, fences: readonly FenceConfig[] = []): Config {
  return { policy: { automatic }, alarm: null, regions: [{ name: 'region-a', lease, fences }] } as unknown as Config
}

function scene(
  looks: readonly AutomaticLook[],
  sinceLastMs: number | null = null,
  automatic: Automatic = { coolDownMs: COOL_DOWN_MS, maxLossMs: 1000 },
) {
  const clock = createManualClock()
  const log: string[] = []
  let runs = 0
  let at = 0
  const failover: AutomaticFailover = {
    look: () => Promise.resolve(looks[Math.min(at++, looks.length - 1)] ?? { kind: 'answers' }),
    run: () => {
      runs += 1
      return Promise.resolve({ exit: 'done', fact: '3 keys moved', next: null })
    },
    sinceLastMs: () => Promise.resolve(sinceLastMs),
  }
  const parts = {
    config: configOf(automatic),
    clock,
    log: (event: string) => void log.push(event),
    metrics: createMetrics(),
    hooks: { run: () => Promise.resolve({ code: 0, output: '' }), request: () => Promise.resolve({ status: 200 }) },
  }
  const watch = createAutomaticWatch('region-a', failover, parts)
  const look = async (times: number) => {
    for (let i = 0; i < times; i += 1) await watch.look(new AbortController().signal)
    return runs
  }
  return { clock, log, look }
}

describe('which regions an agent may fail over by itself', () => {
  const on = { coolDownMs: 1, maxLossMs: 1 }
  const lease = { durationMs: 6000, marginMs: 1000, onAgentOutage: 'stop' as const }
  const exec: FenceConfig = { name: 'uplink', kind: 'exec', apply: ['a'], verify: ['v'], lift: ['l'], timeoutMs: 1 }
  const names = (config: Config) => automaticRegions(config).map(r => r.name)

  it('none unless the policy says so, whatever fences them', () => {
    expect(names(configOf(null, lease, [exec]))).toEqual([])
  })

  it('none that only a person’s word, or a lease that it may outlive, would fence', () => {
    expect(names(configOf(on))).toEqual([])
    expect(names(configOf(on, { ...lease, onAgentOutage: 'keep' }))).toEqual([])
    expect(names(configOf(on, null, [{ name: 'read-only', kind: 'read-only' }]))).toEqual([])
  })

  it('those with a lease that stops them, or a fence that needs no word of theirs', () => {
    expect(names(configOf(on, lease))).toEqual(['region-a'])
    expect(names(configOf(on, null, [exec]))).toEqual(['region-a'])
  })
})

describe('an automatic failover', () => {
  it('runs after two dark looks, once, loudly, and not again before the cool-down is over', async () => {
    const { look, clock, log } = scene([READY])
    expect(await look(1)).toBe(0)
    expect(await look(1)).toBe(1)
    expect(await look(5)).toBe(1)
    clock.advance(COOL_DOWN_MS)
    expect(await look(1)).toBe(2)
    expect(log.filter(event => event === 'alarm')).toHaveLength(4)
    expect(log.filter(event => event === 'automatic-cooling-down')).toHaveLength(1)
  })

  it('never runs while the region answers, nor when one look between two dark ones reached it', async () => {
    expect(await scene([{ kind: 'answers' }]).look(5)).toBe(0)
    const flapping = [READY, { kind: 'answers' as const }, READY, { kind: 'answers' as const }]
    expect(await scene(flapping).look(4)).toBe(0)
  })

  it('never runs on what is for a person to decide, and says once why', async () => {
    const { look, log } = scene([{ kind: 'not-mine', why: 'nobody can say how much would be lost' }])
    expect(await look(10)).toBe(0)
    expect(log).toEqual(['automatic-not-mine'])
  })

  it('never runs while another agent’s run is younger than the cool-down', async () => {
    expect(await scene([READY], COOL_DOWN_MS - 1).look(5)).toBe(0)
    expect(await scene([READY], COOL_DOWN_MS).look(2)).toBe(1)
  })

  it('never runs without a policy', async () => {
    expect(await scene([READY], null, null).look(5)).toBe(0)
  })
})
