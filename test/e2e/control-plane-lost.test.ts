import { afterAll, beforeAll, expect, test } from 'vitest'
import { CONTROL_PLANE_DATABASE } from '../../sandbox/layout.ts'
import { killProcess } from '../../sandbox/processes.ts'
import { CONTROL_PLANE } from '../../sandbox/servers.ts'
import { type StandbyFixture, startStandby } from '../integration/standby-fixture.ts'
import { useFailoverScene } from './failover-scene.ts'

/** The control plane's primary stood in the dark region, and the replica that takes over had not heard of the last minutes. */
const scene = useFailoverScene()
const AWAY = ['--from', 'region-a', '--to', 'region-b', '--force', '--observe', '0s', '--fence', 'external', '--rpo-ack', 'any']
let replica: StandbyFixture

async function forced(key: string, more: readonly string[] = []) {
  return await scene.cli(['failover', key, ...AWAY, '--confirm', key, ...more])
}

function promoted(): readonly string[] {
  return ['--control-plane', `postgres://homeregion_operator@127.0.0.1:${replica.server.port}/${CONTROL_PLANE_DATABASE}`]
}

/** As an agent of the former control plane did, a moment before it was lost. */
async function grantLease(): Promise<void> {
  await scene.store.leadAgents('agent-b', 60_000)
  await scene.store.grantLease('region-a', 'agent-b', 3_000, 1_000, 0)
  await scene.store.noteLeaseStops('region-a', 'agent-b', true)
}

beforeAll(async () => {
  await scene.register(['kept', 'forgotten'])
  // Read once in good times, as everybody does: this machine has heard then which control plane that is.
  expect((await scene.cli(['status'])).code).toBe(0)
  await grantLease()
  replica = await startStandby(scene.rig.running.controlPlane, { name: 'replica' })
  await scene.kill('region-a')
  await scene.observe()
  await replica.detach()
  // What a run that was taken back in the lost minutes leaves: a token that the replica never drew.
  await scene.adminOfTarget(`select homeregion.claim('kept', 'region-a', 1, 5000)`)
  // Dark once the grant is older than policy.darkAfter.
  await new Promise(resolve => setTimeout(resolve, 1_500))
  const move = await forced('forgotten')
  expect(move.code, move.stderr).toBe(0)
  const primary = scene.rig.sandbox.processes.list().find(p => p.name === CONTROL_PLANE)
  if (primary === undefined) throw new Error('no control plane runs')
  await killProcess(primary)
})
afterAll(async () => {
  await replica.stop()
})

test('without the control plane nothing is handed over, and what can be done is said', async () => {
  const run = await forced('kept')
  expect(run.code, run.stderr).toBe(69)
  expect(run.stderr).toContain('nobody can say who owns what, so nothing can be handed over')
  expect(run.stderr).toMatch(/^next: {2}homeregion fence apply region-a --reason TEXT/m)
  const fence = await scene.cli(['fence', 'apply', 'region-a', '--fence', 'uplink', '--reason', 'the site is dark', '--yes'])
  expect(fence.code, fence.stderr).toBe(0)
  expect(fence.stdout + fence.stderr).toContain('control plane not reached')
})

test('an emergency fence reaches the replica that has taken over, under another address', async () => {
  await replica.promote()
  const status = await scene.cli(['status', ...promoted()])
  expect(status.code, status.stderr).toBe(0)
  expect(status.stderr).toMatch(/^note: \d+ entries of the fence log that stood on this machine only are in the control plane now$/m)
  expect(status.stderr).not.toContain('kept aside')
  expect(status.stdout).toMatch(/region-a.*uplink|uplink.*region-a/)
})

test('a lease that the former control plane granted proves nothing: it may go on granting it', async () => {
  const plan = await scene.cli(['plan', 'failover', 'kept', '--from', 'region-a', '--to', 'region-b', '--fence', 'lease', ...promoted()])
  expect(plan.code, plan.stdout).not.toBe(0)
  expect(plan.stdout + plan.stderr).toMatch(/is not the one that made the last grant/)
  expect(await scene.boundary('kept')).not.toContain('writable')
})

test('a move that the replica never heard of is seen at the region that knows it: that key stays, the others can go', async () => {
  const plan = await scene.cli([
    'plan',
    'failover',
    'forgotten',
    '--from',
    'region-a',
    '--to',
    'region-b',
    '--fence',
    'external',
    ...promoted(),
  ])
  expect(plan.code, plan.stdout).toBe(3)
  expect(plan.stderr).toContain(
    'the control plane has forgotten a move: region-b has forgotten at home in region-b under epoch 2, the control plane in region-a under epoch 1',
  )
  const refused = await forced('forgotten', promoted())
  expect(refused.code, refused.stderr).toBe(3)
  expect(refused.stderr).toContain('Nothing was changed.')
  const move = await forced('kept', promoted())
  expect(move.code, move.stderr).toBe(0)
  expect(await scene.boundary('kept')).toBe('ACTIVE region-b epoch 2 writable')
  const doctor = await scene.cli(['doctor', ...promoted()])
  expect(doctor.code).toBe(3)
  expect(doctor.stdout).toMatch(
    /^NO region-b database: ownership: the control plane has forgotten a move of 1 key: region-b has forgotten/m,
  )
})
