import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterEach, expect, test } from 'vitest'
import { startPostgres } from '../../sandbox/postgres.ts'
import { createProcessTable, isRunning, killProcess, startTimeOf, stopProcess } from '../../sandbox/processes.ts'
import { createSandbox } from '../../sandbox/sandbox.ts'
import { tsxLoader } from '../../sandbox/tsx-loader.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { packageFile } from '../../src/adapters/files/package-root.ts'
import { type CrashGuard, guardAgainstCrash } from '../rig/crash-guard.ts'
import { useRig } from '../rig/use-rig.ts'

const rig = useRig()
const folders: { readonly dir: string; readonly guard: CrashGuard }[] = []

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-sandbox-test-'))
  folders.push({ dir, guard: guardAgainstCrash(dir) })
  return dir
}

afterEach(async () => {
  for (const { dir, guard } of folders.splice(0)) {
    try {
      await createSandbox({ dir }).down()
      rmSync(dir, { recursive: true, force: true })
    } finally {
      // What could not be taken down here is taken down by the guard.
      guard.release()
    }
  }
})

test('every part of the sandbox that is killed comes back at the next up, with its data and on its port', async () => {
  const { sandbox, running } = rig.current
  const client = await rig.current.pg('region-a')
  await client.query('create table if not exists public.kept (id int primary key)')
  await client.query('insert into public.kept values (1) on conflict do nothing')
  await client.end()
  for (const part of sandbox.processes.list()) await killProcess(part)
  expect(sandbox.status().filter(part => part.running)).toEqual([])
  const { config } = sandbox.layout
  const own = readFileSync(config, 'utf8')
  writeFileSync(config, `${own}# mine\n`)

  const again = await sandbox.up()

  expect(sandbox.status().filter(part => !part.running)).toEqual([])
  expect([readFileSync(config, 'utf8'), readFileSync(`${config}.former`, 'utf8')]).toEqual([own, `${own}# mine\n`])
  expect(again.regions['region-a'].postgres.port).toBe(running.regions['region-a'].postgres.port)
  expect(again.regions['region-b'].kafka.brokers).toEqual(running.regions['region-b'].kafka.brokers)
  const after = await rig.current.pg('region-a')
  expect((await after.query('select id from public.kept')).rows).toEqual([{ id: 1 }])
  await after.query('drop table public.kept')
})

test('no password of the sandbox stands in the arguments of its processes or is readable by others', () => {
  const { sandbox } = rig.current
  const secrets = ['app_writer', 'homeregion_operator', 'kafka.app_service', 'kafka.app_inbox'].map(name =>
    sandbox.secrets.read(`region-a.${name}`),
  )
  for (const part of sandbox.processes.list()) {
    const argv = readFileSync(`/proc/${part.pid}/cmdline`, 'utf8')
    for (const secret of secrets) expect(argv).not.toContain(secret)
  }
  const config = readFileSync(sandbox.layout.config, 'utf8')
  for (const secret of secrets) expect(config).not.toContain(secret)
  expect(statSync(sandbox.secrets.file('region-a.app_writer')).mode & 0o777).toBe(0o600)
  expect(statSync(sandbox.layout.dir).mode & 0o077).toBe(rootOnly() ? 0o011 : 0)
})

test('the logins of a region cannot do more than their part', async () => {
  const writer = await rig.current.pg('region-b', 'app_writer')
  await expect(
    writer.query('insert into public.inbox (event_id, tenant_id, owner_epoch, event_type) values (gen_random_uuid(), $1, 1, $2)', [
      't',
      'e',
    ]),
  ).rejects.toMatchObject({ code: '42501' })
  const relay = await rig.current.pg('region-b', 'app_relay')
  await expect(relay.query("update public.outbox set payload = '{}'")).rejects.toMatchObject({ code: '42501' })
  await expect(relay.query('update public.outbox set published_at = published_at')).resolves.toBeDefined()
})

const MOMENTS = [
  // The JVM that formats outlives the start that began it, and must not meet the next one in one folder.
  ['while Kafka formats its folder', (dir: string) => entries(join(dir, 'region-a', 'kafka')).some(name => /^format\..*args$/.test(name))],
  ['when two servers run', (dir: string) => createProcessTable(join(dir, 'processes')).list().length >= 2],
] as const

test.each(MOMENTS)('a start that is killed %s is taken up by the next one', { timeout: 240_000 }, async (_moment, reached) => {
  const dir = folder()
  const child = spawn(process.execPath, ['--import', tsxLoader(), packageFile('test', 'rig', 'bring-up.ts'), dir], { stdio: 'ignore' })
  const table = createProcessTable(join(dir, 'processes'))
  const ended = once(child, 'exit')
  const halfWay = await waitUntil(() => reached(dir), 60_000)
  child.kill('SIGKILL')
  await ended
  expect(halfWay).toBe(true)
  const orphans = table.list().filter(isRunning)

  const sandbox = createSandbox({ dir, services: false })
  await sandbox.up()

  expect(
    sandbox
      .status()
      .filter(part => part.running)
      .map(part => part.name),
  ).toEqual(['control-plane', 'postgres-region-a', 'kafka-region-a', 'postgres-region-b', 'kafka-region-b'])
  const all = sandbox.processes.list()
  await sandbox.down()
  expect([...all, ...orphans].filter(isRunning)).toEqual([])
  expect(existsSync(dir)).toBe(false)
})

test('down leaves a folder alone that is no sandbox, and up refuses it', async () => {
  const dir = folder()
  mkdirSync(join(dir, 'photos'))
  writeFileSync(join(dir, 'letter.txt'), 'dear')
  expect(await createSandbox({ dir }).down()).toBe(false)
  await expect(createSandbox({ dir }).up()).rejects.toMatchObject({ code: 'sandbox' })
  expect(existsSync(join(dir, 'letter.txt'))).toBe(true)
})

test('two starts at once: one works, the other is told who', async () => {
  const { sandbox } = rig.current
  const outcomes = await Promise.allSettled([sandbox.up(), createSandbox({ dir: rig.current.dir }).up()])
  expect(outcomes.map(o => o.status).toSorted()).toEqual(['fulfilled', 'rejected'])
  const refused = outcomes.find(o => o.status === 'rejected')
  expect(refused?.reason).toMatchObject({ code: 'sandbox', message: expect.stringContaining(String(process.pid)) as string })
})

test('a process that took over the pid of one of ours is never signalled', async () => {
  const stranger = spawn('sleep', ['60'])
  const pid = stranger.pid ?? -1
  await stopProcess({ name: 'gone', pid, startTime: '1', stopSignal: 'SIGTERM', graceMs: 100 })
  expect(startTimeOf(pid)).not.toBeNull()
  stranger.kill('SIGKILL')
})

test('what a dead test run leaves behind is taken down', async () => {
  const dir = folder()
  const sandbox = createSandbox({ dir })
  const guard = guardAgainstCrash(dir)
  writeFileSync(join(dir, '.homeregion-sandbox'), '')
  const server = await startPostgres({ dir: join(dir, 'control-plane'), name: 'control-plane', onStart: p => sandbox.processes.record(p) })
  // The end of the pipe is all the guard ever sees, of a release and of a crash alike.
  guard.release()
  expect(await waitUntil(() => !isRunning(server.process) && !existsSync(dir), 15_000)).toBe(true)
})

test('PostgreSQL 15 and 18 both start, authenticate by password only, and keep what was committed before a kill', async () => {
  const dir = folder()
  writeFileSync(join(dir, '.homeregion-sandbox'), '')
  const table = createProcessTable(join(dir, 'processes'))
  for (const version of [15, 18] as const) {
    const at = join(dir, String(version))
    const start = async () => await startPostgres({ dir: at, version, name: `postgres-${version}`, onStart: p => table.record(p) })
    const server = await start()
    const client = new pg.Client({ connectionString: server.adminUrl })
    client.on('error', () => undefined)
    await client.connect()
    await client.query('create table t as select 1 as one')
    await server.kill()
    const again = await start()
    const reader = new pg.Client({ connectionString: again.adminUrl })
    await reader.connect()
    const shown = await reader.query(
      "select one, current_setting('fsync') as fsync, current_setting('server_version_num')::int / 10000 as major from t",
    )
    expect(shown.rows).toEqual([{ one: 1, fsync: 'on', major: version }])
    await reader.end()
    const stranger = new pg.Client({ connectionString: again.adminUrl.replace(/:[^:@/]+@/, ':wrong@') })
    await expect(stranger.connect()).rejects.toMatchObject({ code: '28P01' })
    await again.stop()
    expect(isRunning(again.process)).toBe(false)
  }
})

function entries(dir: string): readonly string[] {
  return existsSync(dir) ? readdirSync(dir) : []
}

function rootOnly(): boolean {
  return process.getuid?.() === 0
}
