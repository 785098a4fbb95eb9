import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { APPROVER, STRANGER, useFailoverScene } from './failover-scene.ts'
import { eventually, runIdOf, stopped } from './scene.ts'

const scene = useFailoverScene()
const AWAY = ['--from', 'region-a', '--to', 'region-b', '--force', '--observe', '0s']
const WORD = ['--attest', 'power is out in the whole building']
const FENCED = ['--fence', 'external', '--rpo-ack', 'any']

async function forced(key: string, more: readonly string[] = FENCED, options: Parameters<typeof scene.cli>[1] = {}) {
  return await scene.cli(['failover', key, ...AWAY, '--confirm', key, ...more], options)
}

async function unmoved(key: string): Promise<void> {
  expect(await scene.record(key)).toBe('ACTIVE region-a epoch 1')
  expect(await scene.openRuns()).toEqual([])
}

async function moved(key: string): Promise<void> {
  expect(await scene.record(key)).toBe('ACTIVE region-b epoch 2')
  expect(await scene.boundary(key)).toBe('ACTIVE region-b epoch 2 writable')
  expect(await scene.writeAt('region-b', key)).toBeNull()
}

// A dark region registers nothing.
beforeAll(async () => {
  const names = [
    'leased',
    'thin',
    's13',
    'units',
    'token',
    'other',
    'ledger-1',
    'ledger-2',
    'many-1',
    'many-2',
    'many-3',
    'many-4',
    'short-1',
  ]
  await scene.register([
    ...names,
    'declined',
    'rejected',
    'glass',
    'back',
    'worse',
    's17',
    's28',
    'seized',
    'external',
    'guessed',
    'fenced',
    'typed',
    ...['waited', 'copied-1', 'copied-2', 'copied-3', 'copied-4'],
  ])
})

describe('while the source answers', () => {
  it('a forced failover is refused, says who reached it, and points to the way that loses nothing', async () => {
    await scene.register(['s12'])
    const run = await forced('s12', ['--rpo-ack', 'any', ...WORD])
    expect(run.code, run.stderr).toBe(3)
    expect(run.stderr).toMatch(/^error: region-a is not dark: this host reached its database just now \(policy\.darkAfter is 1\.0 s\)/m)
    expect(run.stderr).toMatch(/^next: {2}homeregion failover --from region-a --to region-b {3}\(without --force\)$/m)
    await unmoved('s12')
    const guessed = await scene.cli(['failover', 's12', '--force', '--rpo-ack', 'any'])
    expect(guessed.code, guessed.stderr).toBe(64)
    expect(guessed.stderr).toContain('no region is dark')
  })
})

describe('when the source is dark and nothing was moved away yet', () => {
  beforeAll(async () => {
    await scene.kill('region-a')
  })

  it('what a run put up comes down when it is refused or aborted; a fence that somebody else wants stays', async () => {
    await scene.observe()
    const refused = scene.startCli(['failover', 'fenced', ...AWAY, '--fence', 'external', '--rpo-ack', '30s', '--confirm', 'fenced'], {
      env: { HOMEREGION_FAULT: 'stop@forced:looking' },
    })
    await stopped(refused)
    expect(existsSync(scene.fenceFile)).toBe(true)
    await scene.observe({ ageMs: 60_000 })
    refused.child.kill('SIGCONT')
    expect((await refused.done).code, refused.output()).toBe(10)
    expect(existsSync(scene.fenceFile)).toBe(false)

    const held = scene.startCli(['failover', 'fenced', ...AWAY, ...FENCED, '--confirm', 'fenced'], {
      env: { HOMEREGION_FAULT: 'stop@forced:looking' },
    })
    await stopped(held)
    held.child.kill('SIGKILL')
    await held.done
    expect(existsSync(scene.fenceFile)).toBe(true)
    const aborted = await scene.cli(['abort', runIdOf(held.output())])
    expect(aborted.code, aborted.stdout + aborted.stderr).toBe(0)
    expect(existsSync(scene.fenceFile)).toBe(false)

    const wished = await scene.cli(['fence', 'apply', 'region-a', '--fence', 'uplink', '--reason', 'smoke in the building', '--yes'])
    expect(wished.code, wished.stderr).toBe(0)
    const small = scene.startCli(['failover', 'fenced', ...AWAY, '--fence', 'external', '--rpo-ack', '90s', '--confirm', 'fenced'], {
      env: { HOMEREGION_FAULT: 'stop@forced:looking' },
    })
    await stopped(small)
    await scene.observe({ ageMs: 200_000 })
    small.child.kill('SIGCONT')
    const end = await small.done
    expect(end.code, end.stderr).toBe(10)
    expect(end.stderr).toContain('this run leaves it')
    expect(existsSync(scene.fenceFile)).toBe(true)
    await unmoved('fenced')
  })
})

describe('when the source is dark', () => {
  beforeAll(async () => {
    expect(await scene.store.leadAgents('agent-1', 60_000)).toBe(true)
    await scene.store.grantLease('region-a', 'agent-1', 3_000, 1_000)
    await scene.store.noteLeaseStops('region-a', 'agent-1', true)
    await scene.kill('region-a')
  })

  it('a lease is withheld, waited out with a countdown, and is then the proof; nobody else has to agree', async () => {
    await scene.observe()
    let done = await forced('leased', ['--rpo-ack', '60s', '--fence', 'lease'])
    // The grant that is younger than policy.darkAfter is a contact; it grows older by itself.
    await eventually('the grant is older than policy.darkAfter', async () => {
      if (done.code !== 3 || !done.stderr.includes('reached its lease')) return true
      done = await forced('leased', ['--rpo-ack', '60s'])
      return false
    })
    expect(done.code, done.stdout + done.stderr).toBe(0)
    await moved('leased')
    const [failover] = await scene.store.forcedFailovers({ runId: runIdOf(done.stdout), limit: 1 })
    expect(failover?.fence).toBe('lease-over')
    expect(failover?.fenceObserved).toMatch(/^over for .*, margin of 1\.0 s included \(grant 1\)$/)
    await scene.store.leadAgents('agent-1', 60_000)
    await expect(scene.store.grantLease('region-a', 'agent-1', 3_000, 1_000)).rejects.toMatchObject({ code: 'lease-withheld' })
  })

  it('an attested failover waits for the second person, then hands over in one commit, opens the target, and its first write goes there', async () => {
    await scene.observe()
    const run = await forced('thin', ['--rpo-ack', '60s', ...WORD])
    expect(run.code, run.stdout + run.stderr).toBe(8)
    const id = runIdOf(run.stdout)
    expect(run.stdout).toContain(`next:  homeregion approve ${id}`)
    expect(await scene.record('thin')).toBe('ACTIVE region-a epoch 1')
    const own = await scene.cli(['approve', id])
    expect(own.code, own.stderr).toBe(4)
    expect(own.stderr).toContain('the one who began a run cannot approve it')
    const strange = await scene.cli(['approve', id], { as: STRANGER })
    expect(strange.code, strange.stderr).toBe(4)
    const approved = await scene.cli(['approve', id, '--reason', 'seen from the window'], { as: APPROVER })
    expect(approved.code, approved.stderr).toBe(0)
    const resumed = await scene.cli(['resume', id, '--observe', '0s'])
    expect(resumed.code, resumed.stdout + resumed.stderr).toBe(0)
    expect(resumed.stdout).toContain('1 key moved from region-a to region-b')
    await moved('thin')
    expect(await scene.store.exiles('region-a')).toMatchObject([{ endedAt: null }])
    const status = await scene.cli(['status'])
    expect(status.stdout).toMatch(/EXILE region-a: \d+ keys? went region-a -> region-b\n {2}not compared yet/)
    expect(status.stdout).toMatch(/fence source-attested, as seen then: "power is out in the whole building", said by .* at \d/)
    expect(status.stdout).toContain('acknowledged up to 60.0 s (bound) by homeregion_operator')
    expect(status.stdout).toMatch(/approved: bob_approves at .*: seen from the window/)
  })

  it('the estimate counts what was missing at the last look and all since: 0.4 s taken 90 s ago is up to 90.4 s; a smaller or bare word is refused', async () => {
    await scene.observe({ ageMs: 90_000 })
    const bare = await forced('s13', [...WORD, '--rpo-ack'])
    expect(bare.code, bare.stderr).toBe(10)
    expect(bare.stderr).toMatch(/not known {2}up to 9\d\.\d s of writes; at most 4[5-9]\d writes: these will be LOST/)
    expect(bare.stderr).toMatch(
      /stands on {2}a look of agent-b, 9\d\.\d s old; 2 not published \(oldest 400 ms\); 1 not applied at region-b/,
    )
    expect(bare.stderr).toMatch(
      /^next: {2}homeregion failover s13 --from region-a --to region-b --force --attest TEXT --reason TEXT --rpo-ack 1[56]\ds$/m,
    )
    const missing = await forced('s13', WORD)
    expect(missing.code, missing.stderr).toBe(10)
    const small = await forced('s13', [...WORD, '--rpo-ack', '90s'])
    expect(small.code, small.stderr).toBe(10)
    expect(small.stderr).toMatch(/^error: up to 9\d\.\d s may be lost, the acknowledgement covers 90s$/m)
    await unmoved('s13')
  })

  it('a bound in the wrong unit is no bound; a token that was never issued, is for other keys, or was used owns nothing', async () => {
    await scene.observe()
    for (const wrong of ['91', '91d', '5min', '91 s', '5writes', '-5s']) {
      const run = await forced('units', [...WORD, `--rpo-ack=${wrong}`])
      expect(run.code, `${wrong}: ${run.stderr}`).toBe(64)
    }
    const unknown = await forced('units', ['--fence', 'external', '--rpo-ack', 'ack-2222-3333-4444-5555'])
    expect(unknown.code, unknown.stderr).toBe(10)
    const planned = await scene.cli([
      'plan',
      'failover',
      'token',
      '--from',
      'region-a',
      '--to',
      'region-b',
      '--fence',
      'external',
      '-o',
      'json',
    ])
    expect(planned.code, planned.stderr).toBe(0)
    const { ackToken } = JSON.parse(planned.stdout) as { ackToken: string }
    const foreign = await forced('other', ['--fence', 'external', '--rpo-ack', ackToken])
    expect(foreign.code, foreign.stderr).toBe(10)
    expect(foreign.stderr).toContain('the acknowledgement token is for plan')
    const used = await forced('token', ['--fence', 'external', '--rpo-ack', ackToken])
    expect(used.code, used.stdout + used.stderr).toBe(0)
    await moved('token')
    const again = await forced('other', ['--fence', 'external', '--rpo-ack', ackToken])
    expect(again.code, again.stderr).toBe(10)
    expect(again.stderr).toMatch(/was used already, by run run-/)
    await unmoved('other')
  })

  it('a token serves its run through the wait for approval, and no other run and no other login', async () => {
    await scene.observe()
    const planned = await scene.cli(['plan', 'failover', 'waited', ...AWAY.slice(0, 4), '--fence', 'attest', '-o', 'json'])
    const { ackToken } = JSON.parse(planned.stdout) as { ackToken: string }
    const owned = [...WORD, '--rpo-ack', ackToken]
    const strange = await scene.cli(['failover', 'waited', ...AWAY, '--confirm', 'waited', ...owned], { as: STRANGER })
    expect(strange.code, strange.stderr).toBe(10)
    expect(strange.stderr).toContain('was given to homeregion_operator')
    const run = await forced('waited', owned)
    expect(run.code, run.stdout + run.stderr).toBe(8)
    const id = runIdOf(run.stdout)
    const second = await forced('waited', owned)
    expect(second.code, second.stderr).toBe(10)
    expect(second.stderr).toContain(`was used already, by run ${id}`)
    // What may be lost is what it was when the word was given, and nothing is added for typing it: 5.4 s and what the command took.
    const asked = await scene.cli(['resume', id, '--rpo-ack'])
    expect(asked.code, asked.stderr).toBe(10)
    expect(Number(new RegExp(`^next:  homeregion resume ${id} --rpo-ack (\\d+)s$`, 'm').exec(asked.stderr)?.[1])).toBeLessThan(60)
    const approved = await scene.cli(['approve', id], { as: APPROVER })
    expect(approved.stdout, approved.stderr).toContain(`next:  homeregion resume ${id}`)
    const resumed = await scene.cli(['resume', id, '--observe', '0s'])
    expect(resumed.code, resumed.stdout + resumed.stderr).toBe(0)
    await moved('waited')
    expect((await scene.store.forcedFailovers({ runId: id, limit: 1 }))[0]?.acknowledgement.kind).toBe('token')
  })

  it('who approves is what init put in force, and a file that says otherwise is told so', async () => {
    await scene.observe()
    const copy = scene.copy('lenient', { approvals: { approvers: [STRANGER], needed: 1, aboveKeys: 1_000 } })
    const keys = ['copied-1', 'copied-2', 'copied-3', 'copied-4']
    const run = await scene.cli(['--config', copy, 'failover', ...keys, ...AWAY, ...FENCED, '--confirm-count', '4'])
    expect(run.code, run.stdout + run.stderr).toBe(8)
    expect(run.stderr).toMatch(/^agreed by {2}1 of: bob_approves; by homeregion approve RUN/m)
    expect(run.stderr).toMatch(
      /^in force {3}since .*: 1 of bob_approves, homeregion_operator above 3 keys\. Your file says 1 of eve_does_not above 1000/m,
    )
    const id = runIdOf(run.stdout)
    expect(run.stdout).toContain(`run ${id} waits for approval: 0 of 1 (bob_approves)`)
    expect((await scene.cli(['status'])).stdout).toContain('waits for approval: 0 of 1 (bob_approves)')
    expect((await scene.cli(['abort', id])).code).toBe(0)
  })

  it('keys whose policy is never stay where they are and are listed; above a number of keys somebody else has to agree', async () => {
    await scene.observe()
    const never = await forced('ledger-1')
    expect(never.code, never.stderr).toBe(4)
    const keys = ['ledger-1', 'ledger-2', 'many-1', 'many-2', 'many-3', 'many-4']
    const args = ['failover', ...keys, ...AWAY, ...FENCED]
    const run = await scene.cli([...args, '--confirm-count', '4'])
    expect(run.code, run.stdout + run.stderr).toBe(8)
    expect(run.stderr).toContain('4 of 6 keys would move, 2 stay where they are')
    const id = runIdOf(run.stdout)
    expect((await scene.cli(['approve', id], { as: APPROVER })).code).toBe(0)
    const done = await scene.cli(['resume', id, '--observe', '0s'])
    expect(done.code, done.stdout + done.stderr).toBe(0)
    for (const key of keys.slice(2)) await moved(key)
    for (const key of keys.slice(0, 2)) expect(await scene.record(key)).toBe('ACTIVE region-a epoch 1')
    await scene.observe({ ageMs: 60_000 })
    const over = await forced('short-1')
    expect(over.code, over.stderr).toBe(4)
    expect(over.stderr).toContain('short-1: its policy is at most 30.0 s, and more may be lost')
  })

  it('a rejection stands whatever others say, and broken glass is loud', async () => {
    await scene.observe()
    const run = await forced('rejected', ['--rpo-ack', '60s', ...WORD])
    const id = runIdOf(run.stdout)
    expect((await scene.cli(['reject', id, '--reason', 'it is coming back'], { as: APPROVER })).code).toBe(0)
    const twice = await scene.cli(['reject', id, '--reason', 'or not'], { as: APPROVER })
    expect(twice.stdout, twice.stderr).toContain('that first word stands: it is coming back\nstate: The new reason was not recorded.')
    const late = await scene.cli(['approve', id, '--break-glass', '--reason', 'now'], { as: STRANGER })
    expect(late.code, late.stdout).toBe(4)
    expect(late.stderr).toMatch(/was rejected by bob_approves at .* \(it is coming back\)/)
    const resumed = await scene.cli(['resume', id, '--observe', '0s'])
    expect(resumed.code, resumed.stderr).toBe(4)
    expect(resumed.stderr).toContain(`run ${id} was rejected by ${APPROVER}`)
    await unmoved('rejected')
    const alone = runIdOf((await forced('glass', ['--rpo-ack', '60s', ...WORD])).stdout)
    expect((await scene.cli(['approve', alone, '--break-glass'], { as: STRANGER })).code).toBe(64)
    const broken = await scene.cli(['approve', alone, '--break-glass', '--reason', 'nobody else is awake'], { as: STRANGER })
    expect(broken.stdout, broken.stderr).toMatch(/BROKE THE GLASS: eve_does_not at /)
    expect(broken.stdout).toContain('The glass is broken: no other approval is needed')
    expect((await scene.cli(['resume', alone, '--observe', '0s'])).code).toBe(0)
    await moved('glass')
    const shown = await scene.cli(['run', 'show', alone])
    expect(shown.stdout).toMatch(/^ +BROKE THE GLASS: eve_does_not at .*: nobody else is awake$/m)
    const evidence = (await scene.store.evidence(alone)).findLast(e => e.check === 'approved')
    expect(evidence?.required).toBe('1 approval of bob_approves, homeregion_operator, or the glass broken; and no rejection')
    expect((await scene.cli(['status'])).stdout).toMatch(/BROKE THE GLASS: eve_does_not .*: nobody else is awake/)
  })

  it('one report says everything that is wrong with the keys before anything moves', async () => {
    const file = join(scene.rig.dir, 'keys.txt')
    writeFileSync(file, '\uFEFFdeclined\r\nnobody-knows\r\ndeclined\r\nregion-b\r\nthin\r\n')
    const run = await scene.cli(['failover', '--keys-file', file, ...AWAY, ...FENCED, '--confirm-count', '1'])
    expect(run.code, run.stderr).toBe(65)
    for (const line of [2, 3, 4, 5]) expect(run.stderr).toMatch(new RegExp(`keys\\.txt:${line}:`))
    const declined = await scene.cli(['failover', 'declined', ...AWAY, ...FENCED, '--confirm', 'decline'])
    expect(declined.code, declined.stderr).toBe(3)
    await unmoved('declined')
    const silent = await scene.cli(['failover', 'guessed', '--force', '--rpo-ack', 'any'])
    expect(silent.code, silent.stderr).toBe(64)
    expect(silent.stderr).toContain('region-a is dark and would be left for region-b, and there is no terminal to confirm that at')
    await unmoved('guessed')
  })

  it('a source that comes back during the wait ends it: nothing changed', async () => {
    await scene.observe()
    const run = scene.startCli(['failover', 'back', ...AWAY, ...FENCED, '--confirm', 'back'], {
      env: { HOMEREGION_FAULT: 'stop@forced:looking' },
    })
    await stopped(run)
    await scene.store.recordObservation({
      ...{ observer: 'agent-b', takenAgoMs: 0, observations: [], contacts: [{ region: 'region-a', what: 'database', reached: true }] },
    })
    run.child.kill('SIGCONT')
    const done = await run.done
    expect(done.code, done.stdout + done.stderr).toBe(3)
    expect(done.stderr).toMatch(/^error: the source answers: agent-b reached its database/m)
    expect(done.stderr).toMatch(/^state: Nothing was handed over: region-a still owns the keys on record\.$/m)
    await unmoved('back')
  })

  it('an estimate that got worse than what was owned ends it with 10: nothing changed', async () => {
    await scene.observe()
    const args = ['failover', 'worse', ...AWAY, '--fence', 'external', '--rpo-ack', '30s', '--confirm', 'worse']
    const run = scene.startCli(args, { env: { HOMEREGION_FAULT: 'stop@forced:looking' } })
    await stopped(run)
    await scene.observe({ ageMs: 40_000 })
    run.child.kill('SIGCONT')
    const done = await run.done
    expect(done.code, done.stdout + done.stderr).toBe(10)
    expect(done.stderr).toMatch(/^error: loss-acknowledged: fail: up to \d+\.\d s may be lost, the acknowledgement covers 30s/m)
    // It was in exile by then: what keeps its writers from what was moved away is no longer this run's to take down.
    expect(done.stderr).toContain('the fences of region-a stay')
    expect(existsSync(scene.fenceFile)).toBe(true)
    await unmoved('worse')
  })

  it('a target that is read-only is refused before anything is fenced; one that cannot write afterwards is found by its probe', async () => {
    await scene.observe()
    await scene.adminOfTarget('alter database app set default_transaction_read_only = on')
    const early = await forced('s17')
    await scene.adminOfTarget('set default_transaction_read_only = off')
    await scene.adminOfTarget('alter database app reset default_transaction_read_only')
    expect(early.code, early.stdout + early.stderr).toBe(3)
    expect(early.stderr).toContain('region-b is read-only')
    await unmoved('s17')
    const run = scene.startCli(['failover', 's28', ...AWAY, ...FENCED, '--confirm', 's28', '--runbook', shortened()], {
      env: { HOMEREGION_FAULT: 'stop@forced:opened' },
    })
    await stopped(run)
    await scene.adminOfTarget('revoke insert on public.account from app_writer')
    run.child.kill('SIGCONT')
    const late = await run.done
    await scene.adminOfTarget('grant insert on public.account to app_writer')
    expect(late.code, late.stdout + late.stderr).toBe(7)
    expect(late.stdout).toMatch(/target-accepts-write: fail: s28: app_writer on public\.account: .*permission denied/)
    expect(late.stdout).toMatch(/^state: 1 key is region-b's since the commit, there is only forward/m)
    const id = runIdOf(late.stdout)
    expect(late.stdout).toContain(`next:  homeregion resume ${id}`)
    expect((await scene.cli(['abort', id])).code).toBe(7)
    const done = await scene.cli(['resume', id, '--observe', '0s'])
    expect(done.code, done.stdout + done.stderr).toBe(0)
    await moved('s28')
  })

  it('a key that another run holds is taken from it, and that run is closed', async () => {
    await scene.observe()
    const held = await forced('seized', ['--rpo-ack', '60s', ...WORD])
    const id = runIdOf(held.stdout)
    const taken = await forced('seized')
    expect(taken.code, taken.stdout + taken.stderr).toBe(0)
    // Whoever takes it was told.
    expect(taken.stderr).toMatch(
      new RegExp(`^ATTENTION {2}run ${id}, begun by homeregion_operator at .*, is failing over 1 of these keys too`, 'm'),
    )
    await moved('seized')
    expect((await scene.store.run(id))?.state).toBe('SEIZED')
    const late = await scene.cli(['resume', id, '--rpo-ack', 'any'])
    expect(late.code, late.stderr).toBe(5)
  })

  it('at a terminal the bound that was shown is typed, then the key; anything else, or Ctrl-C, changes nothing', async () => {
    await scene.observe()
    const typing = ['failover', 'typed', '--from', 'region-a', '--to', 'region-b', '--force', '--rpo-ack', '--observe', '0s']
    const bound = /Type (\d+s) to own the loss of up to/
    for (const wrong of ['30', '30m', 'any', '']) {
      const run = scene.terminal([...typing, '--fence', 'external'])
      await run.sees(bound)
      run.types(wrong)
      expect(await run.done, run.screen()).toBe(10)
      expect(run.screen()).toMatch(/^state: Nothing was changed\.$/m)
    }
    const left = scene.terminal([...typing, '--fence', 'external'])
    await left.sees(bound)
    left.interrupts()
    expect(await left.done, left.screen()).toBe(10)
    expect(left.screen()).toContain('nobody typed what may be lost')

    const run = scene.terminal([...typing, '--fence', 'attest'])
    await run.sees(/Why can region-a no longer write\?/)
    expect(run.screen()).toMatch(/^then {7}nothing is changed yet/m)
    expect(run.screen()).toMatch(/^agreed by {2}1 of: bob_approves; by homeregion approve/m)
    run.types('the building burns')
    await run.sees(bound)
    run.types(bound.exec(run.screen())?.[1] ?? '')
    await run.sees(/Type the key \(typed\) to move it to region-b/)
    run.types('type')
    expect(await run.done, run.screen()).toBe(3)
    expect(run.screen()).toContain('Nothing was handed over')
    await unmoved('typed')

    const done = scene.terminal([...typing, '--fence', 'external'])
    await done.sees(bound)
    done.types(bound.exec(done.screen())?.[1] ?? '')
    await done.sees(/Type the key \(typed\) to move it to region-b/)
    done.types('typed')
    expect(await done.done, done.screen()).toBe(0)
    await moved('typed')
  })

  it('an external fence stands after a failover', () => {
    expect(existsSync(scene.fenceFile)).toBe(true)
  })
})

function shortened(): string {
  const path = join(scene.rig.dir, 'short-failover.yaml')
  writeFileSync(path, RUNBOOK)
  return path
}

const RUNBOOK = `apiVersion: homeregion/v1
kind: Runbook
name: short-failover
intent: failover
title: Forced move with short gates
steps:
  - { id: sight, title: Nobody sees the source, gate: [source-dark, no-region-ahead, target-can-write], within: 10s }
  - { id: estimate, title: Own what may be lost, confirm: type-key, gate: [loss-acknowledged] }
  - { id: approve, title: Others agree, gate: [approved], within: 10s }
  - { id: isolate, title: Fence from outside, action: isolate, gate: [lease-over, external-fence-holds, source-attested], within: 10s }
  - { id: activate, title: Hand over, action: activate, gate: [target-accepts-write], within: 2s }
`
