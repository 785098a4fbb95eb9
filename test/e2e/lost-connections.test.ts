import { describe, expect, it } from 'vitest'
import type { CliResult } from '../rig/cli.ts'
import { atPort, configCopy, portOf, type WrittenConfig } from './config-copy.ts'
import { SHORT_CATCH_UP } from './runbooks.ts'
import { runIdOf, stopped, useScene } from './scene.ts'
import { startTcpLink } from './tcp-link.ts'

/** Where the way to the control plane is cut, and what the command says and ends with. */
const CONTROL_PLANE_CUTS = [
  ['drain-start:before', 'broken', 9, 'region-a still writes it under epoch 1'],
  ['drain-start:after', 'broken', 9, 'is written at region-a under epoch 1 (read back)'],
  ['drain-start:after', 'silent', 9, 'is written at region-a under epoch 1 (read back)'],
  ['drain:applied', 'broken', 9, 'is written at region-a under epoch 1 (read back)'],
  ['fence-start:before', 'broken', 9, 'is written at region-a under epoch 1 (read back)'],
  ['fence-start:after', 'broken', 7, 'is FENCED at region-a (read back); nobody was activated'],
  ['fence:applied', 'broken', 7, 'is FENCED at region-a (read back); nobody was activated'],
  ['fence-end:after', 'broken', 9, 'whether region-b became home is not known. Nothing was un-fenced'],
  ['caught-up', 'silent', 9, 'whether region-b became home is not known. Nothing was un-fenced'],
  ['activate:verified', 'broken', 9, 'whether region-b became home is not known. Nothing was un-fenced'],
  ['activate:before', 'broken', 9, 'whether region-b became home is not known. Nothing was un-fenced'],
  ['activate:after', 'broken', 7, "is region-b's since epoch 2"],
  ['activate:opened', 'broken', 7, "is region-b's since epoch 2"],
] as const

const keyOf = (where: string, point: string, how: string) => `${where}-${point.replace(':', '-')}-${how}`

const scene = useScene([
  ...CONTROL_PLANE_CUTS.map(([point, how]) => keyOf('control', point, how)),
  ...['drain-start:after', 'fence-start:after', 'caught-up'].map(point => keyOf('source', point, 'broken')),
  ...['fence:applied', 'activate:after'].map(point => keyOf('target', point, 'broken')),
])

describe.concurrent('a control plane that stops answering activates nobody, leaves an unfenced source writing, and resume finishes', () => {
  it.each(CONTROL_PLANE_CUTS)('at %s (%s): exit %i, %s', async (point, how, code, told) => {
    const key = scene.key(keyOf('control', point, how))
    const { end, restore } = await cutAt(key, point, how, c => c.controlPlane)
    expect(end.code, end.stdout + end.stderr).toBe(code)
    const run = runIdOf(end.stdout)
    expect(end.stdout).toContain('the control plane does not answer')
    expect(end.stdout).toMatch(new RegExp(`^state: ${key}.*`, 'm'))
    expect(end.stdout).toContain(told)
    expect(end.stdout).toMatch(new RegExp(`^next: {2}homeregion resume ${run} {3}or {3}homeregion abort ${run}`, 'm'))
    // What was told is what the databases hold.
    const { record, boundaries } = await scene.ownership(key)
    if (told.includes('epoch 1')) {
      expect(boundaries['region-a']).toBe('ACTIVE region-a epoch 1 writable')
      await scene.write(key, 'region-a')
    } else if (told.includes('region-b’s') || told.includes("region-b's")) {
      expect(record).toBe('ACTIVE region-b epoch 2')
    } else {
      expect(boundaries['region-a']).toBe('FENCED region-a epoch 1')
      expect(record).toMatch(/^(DRAINING|FENCED|CATCH_UP) region-a epoch 1$/)
      await scene.writableNowhere(key)
    }
    await restore()
    const resumed = await scene.rig.cli(['resume', run, '--confirm', key, '--observe', '0s'], { timeoutMs: 120_000 })
    expect(resumed.code, resumed.stdout + resumed.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 2)
  })
})

describe.concurrent("a source's database that goes away leaves a state that is told, and abort gives the key back", () => {
  it.each([
    ['drain-start:after', 1],
    ['fence-start:after', 1],
    ['caught-up', 2],
  ] as const)('at %s: back under epoch %i', async (point, epoch) => {
    const key = scene.key(keyOf('source', point, 'broken'))
    const { end, restore } = await cutAt(key, point, 'broken', c => c.regions['region-a'].database.operator)
    expect(end.code, end.stdout + end.stderr).toBe(7)
    const run = runIdOf(end.stdout)
    expect(end.stdout).toMatch(/and the way back failed: region-a database/)
    expect(end.stdout).toMatch(
      new RegExp(
        `^state: ${key} is [A-Z_]+ on record \\(home region-a, epoch \\d\\); it was NOT verified that region-a can write it\\.$`,
        'm',
      ),
    )
    expect(end.stdout).toMatch(new RegExp(`^next: {2}homeregion abort ${run}$`, 'm'))
    expect((await scene.ownership(key)).record).toContain('region-a')
    await restore()
    const aborted = await scene.rig.cli(['abort', run], { timeoutMs: 120_000 })
    expect(aborted.code, aborted.stdout + aborted.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-a', epoch)
  })
})

describe.concurrent("a target's database that goes away", () => {
  it('before the activation gives the key back under a new epoch', async () => {
    const key = scene.key(keyOf('target', 'fence:applied', 'broken'))
    const { end, restore } = await cutAt(key, 'fence:applied', 'broken', c => c.regions['region-b'].database.operator, [
      '--runbook',
      scene.runbook([SHORT_CATCH_UP]),
    ])
    expect(end.code, end.stdout + end.stderr).toBe(6)
    expect(end.stdout).toMatch(/barrier-applied: unknown.*region-b database/)
    expect(end.stdout).toContain(`state: ${key} is written at region-a again, epoch 2: read back`)
    await restore()
    await scene.writableOnlyAt(key, 'region-a', 2)
  })

  it('after the activation is told, and resume opens it', async () => {
    const key = scene.key(keyOf('target', 'activate:after', 'broken'))
    const { end, restore } = await cutAt(key, 'activate:after', 'broken', c => c.regions['region-b'].database.operator)
    expect(end.code, end.stdout + end.stderr).toBe(7)
    expect(end.stdout).toContain(`state: ${key} is region-b's since epoch 2; there is no way back, only forward.`)
    await scene.writableNowhere(key)
    await restore()
    const resumed = await scene.rig.cli(['resume', runIdOf(end.stdout), '--observe', '0s'], { timeoutMs: 120_000 })
    expect(resumed.code, resumed.stdout + resumed.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 2)
  })
})

type Login = (config: WrittenConfig) => { url: string }

/** Runs a transfer, and cuts the way to one server at a point of the journal. */
async function cutAt(
  key: string,
  point: string,
  how: 'broken' | 'silent',
  login: Login,
  more: readonly string[] = [],
): Promise<{ end: CliResult; restore: () => Promise<void> }> {
  let port = 0
  configCopy(scene, c => {
    port = portOf(login(c))
  })
  const link = await startTcpLink(port)
  const config = configCopy(scene, c => {
    // Everything that goes to this server goes through the link: a region's writers too.
    const logins = [c.controlPlane, ...Object.values(c.regions).flatMap(r => [r.database.operator, ...r.database.writers])]
    for (const each of logins) if (portOf(each) === port) Object.assign(each, atPort(each, link.port))
  })
  await scene.write(key, 'region-a')
  const run = scene.startTransfer(key, 'region-b', ['--config', config, ...more], {
    env: { HOMEREGION_FAULT: `stop@${point}` },
    timeoutMs: 170_000,
  })
  await stopped(run)
  link.cut(how)
  run.child.kill('SIGCONT')
  const end = await run.done
  // The commands that follow use the rig's own configuration; the link is not needed any more.
  return { end, restore: async () => await link.stop() }
}
