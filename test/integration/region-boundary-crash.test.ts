import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../sandbox/postgres.ts'
import { createBoundaryFence } from '../../src/adapters/postgres-region/fences/boundary.ts'
import type { Fence } from '../../src/domain/fence.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { type RegionFixture, secrets, startRegion } from './boundary-fixture.ts'
import { INSERT, VERSIONS } from './region-boundary-fixture.ts'

const CAUSE = { reason: 'the server crashes', by: 'op', runId: null }

describe.each(VERSIONS)('a crash around the fence of a region on PostgreSQL %i', version => {
  let f: RegionFixture
  let server: PostgresServer
  beforeAll(async () => {
    f = await startRegion({ version })
    server = f.server
    await f.db.register(['k1', 'k2'].map(key => ({ key, homeRegion: 'region-a', epoch: 1 })))
  })
  afterAll(async () => {
    await f?.stop()
    await server?.stop()
  })

  const fenceWith = (at: string, work: () => Promise<void>): Fence =>
    createBoundaryFence(f.region, f.config, secrets, async point => (point === at ? await work() : undefined))
  const restart = async () => {
    await server.kill()
    server = await startPostgres({ dir: f.server.dir, version, port: f.server.port })
  }
  const written = async (key: string) => {
    const client = await f.login('app_writer')
    const code = await client.query(INSERT, [key]).then(
      () => null,
      (error: unknown) => (error as pg.DatabaseError).code,
    )
    await client.end()
    return code
  }

  test('right after its commit keeps it, and applying again waits for a prepared transaction of before', async () => {
    const w = await f.login('app_writer')
    await w.query('begin')
    await w.query(INSERT, ['k1'])
    await w.query(`prepare transaction 'of before'`)
    const fence = fenceWith('fence:boundary:committed', async () => {
      await restart()
      throw new Error('killed here')
    })
    await expect(fence.apply(CAUSE)).rejects.toThrow()
    await fence.close()
    expect([await written('k1'), await written('k2')]).toEqual(['HR009', 'HR009'])
    const again = createBoundaryFence(f.region, { ...f.config, policy: { ...f.config.policy, callTimeoutMs: 500 } }, secrets, () =>
      Promise.resolve(),
    )
    expect(await again.status()).toMatchObject({ state: 'applying', cause: CAUSE })
    await expect(again.apply(CAUSE)).rejects.toMatchObject({
      code: 'fence-failed',
      fields: { inFlight: [{ gid: 'of before', pid: null }] },
    })
    const settle = await f.login('app_writer')
    await settle.query(`commit prepared 'of before'`)
    await again.apply(CAUSE)
    expect((await again.verify()).filter(o => o.verdict !== 'pass')).toEqual([])
    await again.close()
  })

  test.each(['fence:boundary:waited', 'fence:boundary:settled'])(
    'of the command at %s leaves it standing, and applying again finishes it',
    async at => {
      const fence = fenceWith(at, () => Promise.reject(new Error('killed here')))
      await liftStanding(fence, CAUSE)
      await expect(fence.apply(CAUSE)).rejects.toThrow('killed here')
      expect(await written('k1')).toBe('HR009')
      await fence.close()
      const again = fenceWith('nowhere', () => Promise.resolve())
      await again.apply(CAUSE)
      expect(await again.status()).toMatchObject({ state: 'applied' })
      await again.close()
    },
  )

  test('right after the commit of its lift keeps it lifted, for all keys', async () => {
    const fence = fenceWith('fence:boundary:lifted', async () => {
      await restart()
      throw new Error('killed here')
    })
    await fence.apply(CAUSE)
    await expect(liftStanding(fence, CAUSE)).rejects.toThrow()
    await fence.close()
    expect([await written('k1'), await written('k2')]).toEqual([null, null])
    const again = fenceWith('nowhere', () => Promise.resolve())
    expect(await liftStanding(again, CAUSE)).toContain('keys writable: 2')
    await again.close()
  })
})
