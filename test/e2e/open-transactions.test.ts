import { type ChildProcess, spawn } from 'node:child_process'
import { describe, expect, it } from 'vitest'
import { databaseUrl } from '../../sandbox/databases.ts'
import { APP_DATABASE } from '../../sandbox/layout.ts'
import type { Acknowledged } from '../../sandbox/load.ts'
import { tsxLoader } from '../../sandbox/tsx-loader.ts'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import type { Rig } from '../rig/rig.ts'
import { type DirectWrite, directWrite, perform, performInside, sqlstateOf } from './direct-write.ts'
import { SHORT_DRAIN } from './runbooks.ts'
import { eventually, useScene } from './scene.ts'

const scene = useScene(['open-suspended', 'open-terminated', 'open-snapshot', 'open-prepared', 'open-idle', 'open-outbox'])

describe.concurrent('a transaction that is open when the drain begins', () => {
  it('of a suspended writer: the drain waits for it, then gives the key back under the same epoch, and its commit stands', async () => {
    const key = scene.key('open-suspended')
    const writer = await holdWrite(scene.rig, directWrite(key, 'region-a', 1))
    writer.child.kill('SIGSTOP')
    const run = await scene.transfer(key, 'region-b', ['--runbook', scene.runbook([SHORT_DRAIN])])
    expect(run.code, run.stdout + run.stderr).toBe(6)
    expect(run.stdout).toMatch(/writes-in-flight: fail: pid \d+ of app_writer \("?batch-import"?\), idle in transaction, open \d/)
    expect(run.stdout).toContain(`\nstate: ${key} is written at region-a again, epoch 1: read back`)
    writer.child.kill('SIGCONT')
    expect(await writer.commit()).toEqual({ committed: true })
    scene.remember(writer.ack)
    await scene.writableOnlyAt(key, 'region-a', 1)
  })

  it('of a writer whose session the operator ended: the drain passes, and after the move its commit is refused', async () => {
    const key = scene.key('open-terminated')
    const writer = await holdWrite(scene.rig, directWrite(key, 'region-a', 1))
    writer.child.kill('SIGSTOP')
    const run = scene.startTransfer(key, 'region-b')
    await run.waitFor(/drain: writes-in-flight: pid (\d+) /, 90_000)
    const pid = Number(/writes-in-flight: pid (\d+) /.exec(run.output())?.[1])
    await (await scene.rig.pg('region-a')).query('select pg_terminate_backend($1)', [pid])
    const end = await run.done
    expect(end.code, end.stdout + end.stderr).toBe(0)
    writer.child.kill('SIGCONT')
    expect(await writer.commit()).toMatchObject({ committed: false })
    await scene.writableOnlyAt(key, 'region-b', 2)
  })

  it('with a snapshot from before the drain, which first writes after the fence, is refused', async () => {
    const key = scene.key('open-snapshot')
    const sessions = await Promise.all([scene.rig.pg('region-a', 'app_writer'), scene.rig.pg('region-a', 'app_writer')])
    for (const session of sessions) {
      await session.query('begin isolation level repeatable read')
      await session.query('select count(*) from public.account')
    }
    const run = scene.startTransfer(key, 'region-b', [], { env: { HOMEREGION_FAULT: 'stop@fence-end:after' } })
    await eventually('the fence is recorded', async () => (await scene.ownership(key)).record.startsWith('FENCED'))
    const [fenced, moved] = sessions
    expect(await refusalOf(performInside(fenced, directWrite(key, 'region-a', 1)))).toMatch(/^(HR001|HR002|40001)$/)
    await eventually('the command goes on', () => {
      run.child.kill('SIGCONT')
      return run.child.exitCode !== null || run.output().includes('catch-up')
    })
    const end = await run.done
    expect(end.code, end.stdout + end.stderr).toBe(0)
    expect(await refusalOf(performInside(moved, directWrite(key, 'region-a', 1)))).toMatch(/^(HR001|HR002|40001)$/)
    await Promise.all(sessions.map(async s => await s.query('rollback')))
    await scene.writableOnlyAt(key, 'region-b', 2)
  })

  it('that was prepared: the drain does not pass, and names its gid, owner and age', async () => {
    const key = scene.key('open-prepared')
    const gid = `import of 1 May, ${key}`
    const session = await scene.rig.pg('region-a', 'app_writer')
    // An outbox with NOTIFY in its trigger cannot be prepared; the other tables can.
    await session.query('begin')
    await session.query(`insert into public.invoice (tenant_id, invoice_id, account_id, amount_cents) values ($1, '1', 'account-0', 100)`, [
      key,
    ])
    await session.query(`prepare transaction '${gid}'`)
    const run = await scene.transfer(key, 'region-b', ['--runbook', scene.runbook([SHORT_DRAIN])])
    expect(run.code, run.stdout + run.stderr).toBe(6)
    expect(run.stdout).toMatch(new RegExp(`prepared transaction "${gid}" of app_writer, prepared, open \\d`))
    expect(run.stdout).toContain(`\nstate: ${key} is written at region-a again, epoch 1: read back`)
    await session.query(`commit prepared '${gid}'`)
    const again = await scene.transfer(key, 'region-b')
    expect(again.code, again.stdout + again.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 2)
  })

  it('and idle: the drain shows pid, application and age, and does not end the session', async () => {
    const key = scene.key('open-idle')
    const session = await scene.rig.pg('region-a', 'app_writer')
    await session.query(`set application_name = 'nightly-report'`)
    const pid = await pidOf(session)
    const ack = await perform(session, directWrite(key, 'region-a', 1))
    const run = await scene.transfer(key, 'region-b', ['--runbook', scene.runbook([SHORT_DRAIN]), '-o', 'json'])
    expect(run.code, run.stdout + run.stderr).toBe(6)
    const [end] = (JSON.parse(run.stdout) as { keys: { outcome: string; fact: string; state: string }[] }).keys
    expect(end?.outcome).toBe('rolled-back')
    expect(end?.fact).toMatch(new RegExp(`pid ${pid} of app_writer \\(nightly-report\\), idle in transaction, open \\d`))
    expect(end?.state).toContain('is written at region-a again, epoch 1')
    // Nobody ended it: it commits.
    await session.query('commit')
    scene.remember(ack)
    await scene.writableOnlyAt(key, 'region-a', 1)
  })

  it('with an outbox row that nobody can see yet: an empty outbox does not pass before it has ended and been published', async () => {
    const key = scene.key('open-outbox')
    await scene.write(key, 'region-a')
    const [session, observer] = await Promise.all([scene.rig.pg('region-a', 'app_writer'), scene.rig.pg('region-a')])
    const early = await perform(session, directWrite(key, 'region-a', 1, 'account-early'))
    // Later rows, with higher positions, are committed and published meanwhile.
    await scene.write(key, 'region-a', 'account-late')
    const unpublished = async () =>
      (await observer.query('select 1 from public.outbox where tenant_id = $1 and published_at is null', [key])).rowCount
    await eventually('all that is committed is published', async () => (await unpublished()) === 0)
    const run = scene.startTransfer(key, 'region-b')
    await run.waitFor(/drain: writes-in-flight: pid \d+ /, 90_000)
    expect(await unpublished()).toBe(0)
    expect(run.output()).not.toMatch(/ok publish/)
    await session.query('commit')
    scene.remember(early)
    const end = await run.done
    expect(end.code, end.stdout + end.stderr).toBe(0)
    await scene.writableOnlyAt(key, 'region-b', 2)
  })
})

async function pidOf(session: { query(sql: string): Promise<{ rows: unknown[] }> }): Promise<number> {
  const { rows } = await session.query('select pg_backend_pid() as pid')
  return (rows[0] as { pid: number }).pid
}

async function refusalOf(work: Promise<unknown>): Promise<string> {
  return await work.then(() => 'admitted', sqlstateOf)
}

type HeldWrite = { readonly child: ChildProcess; readonly ack: Acknowledged; commit(): Promise<unknown> }

/** A writer in another process, inside its transaction, which has written and not committed. */
async function holdWrite(rig: Rig, write: DirectWrite): Promise<HeldWrite> {
  const url = new URL(databaseUrl(rig.running.regions[write.region].postgres.adminUrl, APP_DATABASE))
  url.username = 'app_writer'
  url.password = rig.sandbox.secrets.read(`${write.region}.app_writer`)
  const child = spawn(process.execPath, ['--import', tsxLoader(), packageFile('test', 'e2e', 'held-writer.ts')], {
    env: { PATH: process.env['PATH'] ?? '', WRITER_URL: url.toString(), WRITER_WRITE: JSON.stringify(write) },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  let text = ''
  child.stdout.setEncoding('utf8')
  child.stdout.on('data', (chunk: string) => {
    text += chunk
  })
  const line = async (number: number): Promise<unknown> => {
    await eventually('the writer says so', () => text.split('\n').length > number)
    return JSON.parse(text.split('\n')[number - 1] ?? 'null')
  }
  const wrote = (await line(1)) as { wrote: Acknowledged }
  return {
    child,
    ack: wrote.wrote,
    commit: async () => {
      child.stdin.write('commit\n')
      return await line(2)
    },
  }
}
