import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type StandbyFixture, startStandby } from '../integration/standby-fixture.ts'
import { type SessionPooler, startSessionPooler } from '../rig/session-pooler.ts'
import { configCopy } from './config-copy.ts'
import { stopped, useScene } from './scene.ts'

const scene = useScene(['paths-moved', 'paths-promoted'])

let standby: StandbyFixture
let pooler: SessionPooler
let config: string

beforeAll(async () => {
  const primary = scene.rig.running.regions['region-a'].postgres
  standby = await startStandby(primary, { name: 'replica' })
  pooler = await startSessionPooler({ target: { port: primary.port }, mode: 'transaction' })
  config = configCopy(scene, c => {
    const at = (name: string, kind: string, port: number) => ({ name, kind, host: '127.0.0.1', port })
    Object.assign(c.regions['region-a'].database, {
      endpoints: [at('pool', 'pooler', pooler.port), at('replica', 'standby', standby.server.port)],
    })
  })
})

afterAll(async () => {
  await pooler?.stop()
  await standby?.stop()
})

describe('a region with a pooler and a standby', () => {
  it('moves a key once every path has refused it, and says which', async () => {
    const key = scene.key('paths-moved')
    const end = await scene.transfer(key, 'region-b', [], { env: { HOMEREGION_CONFIG: config } })
    expect(end.code, end.stdout + end.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 2)
    const admin = await scene.rig.pg('control-plane')
    const { rows } = await admin.query<{ observed: string }>(
      `select observed from homeregion_control.evidence where key = $1 and check_name = 'fence-holds' and verdict = 'pass'`,
      [key],
    )
    expect(rows.length).toBeGreaterThan(0)
    for (const { observed } of rows) {
      expect(observed).toContain('endpoint pool refuses every writer')
      expect(observed).toContain('endpoint replica is in recovery and shows the fence')
      expect(observed).toContain('flushed by standby replica')
    }
  })

  it('does not activate when its standby was promoted behind the back of the run, and the key goes back', async () => {
    const key = scene.key('paths-promoted')
    const run = scene.startTransfer(key, 'region-b', [], { env: { HOMEREGION_CONFIG: config, HOMEREGION_FAULT: 'stop@caught-up' } })
    await stopped(run)
    await standby.promote()
    run.child.kill('SIGCONT')
    const end = await run.done
    expect(end.code, end.stdout + end.stderr).toBe(6)
    expect(end.stdout + end.stderr).toContain(
      'endpoint replica was promoted (not in recovery): it shows FENCED at region-a, epoch 1, fenced there too',
    )
    await scene.writableOnlyAt(key, 'region-a', 2)
  })
})
