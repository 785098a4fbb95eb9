import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { runIdOf, stopped, useScene } from './scene.ts'

const scene = useScene(['back-opened', 'back-disabled', 'back-owed'])

describe('what is done behind the back of a run', () => {
  it('a target opened past the control plane stops the run: nothing is activated, and abort does not open the source beside it', async () => {
    const key = scene.key('back-opened')
    const run = scene.startTransfer(key, 'region-b', [], { env: { HOMEREGION_FAULT: 'stop@fence:applied' } })
    await stopped(run)
    const operator = await scene.rig.pg('region-b', 'homeregion_operator')
    await operator.query('select * from homeregion.open($1, 2, 0)', [key])
    run.child.kill('SIGCONT')
    const end = await run.done
    expect(end.code, end.stdout + end.stderr).toBe(7)
    expect(end.stdout).toContain("region-b's boundary has")
    expect(end.stdout).toContain('it was opened past the control plane')
    const aborted = await scene.rig.cli(['abort', runIdOf(end.stdout)], { timeoutMs: 120_000 })
    expect(aborted.code, aborted.stdout + aborted.stderr).toBe(7)
    const { record, boundaries } = await scene.ownership(key)
    expect(record).toMatch(/^(FENCED|CATCH_UP) region-a epoch 1$/)
    expect(boundaries['region-a']).toBe('FENCED region-a epoch 1')
  })

  it('a guard that was taken off after the preflight fails the proof of the fence, and the key goes back', async () => {
    const key = scene.key('back-disabled')
    const run = scene.startTransfer(key, 'region-b', [], { env: { HOMEREGION_FAULT: 'stop@drain:applied' } })
    await stopped(run)
    const owner = await scene.rig.pg('region-a')
    try {
      await owner.query('alter table public.account disable trigger zzz_homeregion_update')
      run.child.kill('SIGCONT')
      const end = await run.done
      expect(end.code, end.stdout + end.stderr).toBe(6)
      expect(end.stdout).toMatch(/fence-holds: fail: the guard does not stand: .*account/)
    } finally {
      await owner.query('alter table public.account enable always trigger zzz_homeregion_update')
    }
    await scene.writableOnlyAt(key, 'region-a', 2)
  })

  it("an author's step after the activation is still owed when the command died before it", async () => {
    const key = scene.key('back-owed')
    const told = join(scene.dir, 'told')
    const step = `  - id: tell\n    title: Tell somebody\n    action: { exec: { command: ["touch", ${JSON.stringify(told)}], timeout: 5s } }\n`
    const runbook = scene.runbook([['  - id: observe\n', `${step}  - id: observe\n`]])
    const killed = await scene.transfer(key, 'region-b', ['--runbook', runbook], { env: { HOMEREGION_FAULT: 'kill@key-end:after' } })
    expect(killed.signal).toBe('SIGKILL')
    expect(existsSync(told)).toBe(false)
    const resumed = await scene.rig.cli(['resume', runIdOf(killed.stderr), '--observe', '0s'], { timeoutMs: 120_000 })
    expect(resumed.code, resumed.stdout + resumed.stderr).toBe(0)
    expect(existsSync(told)).toBe(true)
    await scene.writableOnlyAt(key, 'region-b', 2)
  })
})
