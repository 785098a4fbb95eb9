import { expect } from 'vitest'
import type { Load } from '../../sandbox/load.ts'
import type { ForcedFailover } from '../../src/domain/failover.ts'
import type { CliResult, CliRun } from '../rig/cli.ts'
import type { Commit, LinkedScene } from './linked-scene.ts'

/** The link is gone for 43 s, both sides are busy, the move is forced after 20 s, and then the link is back: October 2018 at GitHub. */
export const SHAPE = { cutMs: 43_000, forcedAtMs: 20_000 } as const

export type Shape = {
  readonly keys: readonly string[]
  /** 1 is the real thing. */
  readonly scale: number
  readonly force: () => Promise<CliResult>
}

export type Seen = {
  readonly forced: CliResult
  /** Acknowledged by region-a to its own users, at whatever time. */
  readonly atSource: Load
  readonly atTarget: Load
  /** When ownership had been handed over, by this process's clock. */
  readonly forcedAtMs: number
  /** Commits of region-a when the forced command had ended, and when everything was over. */
  readonly commitsThen: readonly Commit[]
  readonly commits: readonly Commit[]
}

/** Cut, forced, healed; region-a is closed by the agent once it answers again, and its late events have all arrived. */
export async function linkCut(scene: LinkedScene, agent: CliRun, { keys, scale, force }: Shape): Promise<Seen> {
  const { regions } = scene
  const atSource = scene.load('region-a', { tenants: keys, ratePerSecond: 60, concurrency: 3 })
  await scene.until('the target follows', 60_000, async () => {
    const applied = await scene.applied('region-b')
    return (await scene.commits('region-a', keys)).filter(c => applied.has(c.eventId)).length >= 20
  })
  await scene
    .until('the agent has looked at region-a', 60_000, async () => {
      const looks = await scene.query(
        'control-plane',
        `select 1 from homeregion_control.region_observation where region = 'region-a' and highest_per_second is not null
  and not_applied -> 'region-b' ->> 'events' is not null
  and ((not_applied -> 'region-b' ->> 'events')::int = 0 or not_applied -> 'region-b' ->> 'oldestMs' is not null)`,
      )
      if (looks.length === 0 && agent.child.exitCode !== null) throw new Error(agent.output())
      return looks.length > 0
    })
    .catch((error: unknown) => {
      throw new Error(agent.output().slice(-3000), { cause: error })
    })
  const cutAtMs = performance.now()
  regions.cut('region-a')
  regions.cut('region-b')
  await scene.until('the time to force it', SHAPE.forcedAtMs * scale + 5000, () => performance.now() - cutAtMs >= SHAPE.forcedAtMs * scale)
  const forced = await force()
  expect(forced.code, forced.stdout + forced.stderr).toBe(0)
  const forcedAtMs = performance.now()
  const commitsThen = await scene.commits('region-a', keys)
  const atTarget = scene.load('region-b', { tenants: keys, ratePerSecond: 60, concurrency: 3 })
  await scene.until('the link comes back', SHAPE.cutMs + 5000, () => performance.now() - cutAtMs >= SHAPE.cutMs * scale)
  expect(agent.output()).not.toMatch(/"event":"exile-fenced"/)
  regions.heal()
  await agent.waitFor(/"event":"exile-fenced"/, 60_000)
  await atSource.stop(500)
  await scene.until('every late event is in quarantine', 60_000, async () => {
    const [applied, late] = [await scene.applied('region-b'), await scene.quarantined('region-b')]
    return (await scene.commits('region-a', keys)).every(c => applied.has(c.eventId) || late.has(c.eventId))
  })
  await atTarget.stop()
  return { forced, atSource, atTarget, forcedAtMs, commitsThen, commits: await scene.commits('region-a', keys) }
}

/**
 * What region-a has acknowledged and region-b does not hold, once by the users' own record and once by comparing outbox and inbox: the two have to
 * agree, and so has the list that `reconcile` makes. @returns the commits that are lost
 */
export async function lostCommits(scene: LinkedScene, { atSource, commits }: Seen): Promise<readonly Commit[]> {
  const applied = await scene.applied('region-b')
  const lost = commits.filter(c => !applied.has(c.eventId))
  const known = new Set(
    (await scene.query<{ id: string }>('region-b', 'select idempotency_key as id from public.idempotency')).map(r => r.id),
  )
  const missing = atSource.acks.filter(a => a.epoch === 1 && !known.has(a.idempotencyKey)).map(a => a.idempotencyKey)
  const listed = lost.flatMap(c => (c.idempotencyKey === null ? [] : [c.idempotencyKey]))
  expect(missing.filter(id => !listed.includes(id))).toEqual([])
  // What was committed and answered to nobody, since its caller had been told to stop, is lost as well.
  expect(listed.filter(id => !missing.includes(id) && !atSource.unsettled.includes(id))).toEqual([])
  const own = await scene.listed([...new Set(commits.map(c => c.key))], 1)
  expect([...own].sort()).toEqual(lost.map(c => c.eventId).sort())
  return lost
}

/** Nothing is lost that is not inside what was owned: neither in number nor in time, counted back from when region-a was believed to have stopped. */
export function insideTheBound(failover: ForcedFailover | undefined, lost: readonly Commit[], stoppedAtMs: number): void {
  expect(failover).toBeDefined()
  if (failover === undefined) return
  const [first] = failover.keys
  const { boundMs } = failover.acknowledgement
  const writes = first?.unknown.writes
  if (writes !== null && writes !== undefined)
    expect(lost.length).toBeLessThanOrEqual(writes + failover.keys.reduce((n, k) => n + k.recoverable, 0))
  if (boundMs !== 'any') for (const c of lost) expect(stoppedAtMs - c.occurredAtMs).toBeLessThanOrEqual(boundMs)
}
