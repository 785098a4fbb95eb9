import { execFile } from 'node:child_process'
import { appendFileSync, chownSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import pg from 'pg'
import { type PostgresServer, startPostgres } from '../../sandbox/postgres.ts'
import type { PostgresVersion } from '../../sandbox/postgres-binaries.ts'
import { waitUntil } from '../../sandbox/wait-until.ts'

const REPLICATOR = 'test_replicator'
const PASSWORD = 'throwaway-of-one-standby'

export type StandbyFixture = {
  readonly server: PostgresServer
  readonly name: string
  /** A session as superuser in a database of the standby. Closed with the fixture. */
  admin(database?: string): Promise<pg.Client>
  /** Suspends the process that receives WAL: nothing more reaches the standby's disk, and the primary still counts it as streaming. */
  holdWal(): Promise<void>
  releaseWal(): void
  /** Receives nothing more: what the primary does from its return on, a promotion does not know. */
  detach(): Promise<void>
  /** Ends it as a crash does, what receives WAL included. */
  kill(): Promise<void>
  /** Ends recovery: from its return on the standby takes writes. */
  promote(): Promise<void>
  stop(): Promise<void>
}

export type StandbyOptions = {
  readonly version?: PostgresVersion
  /** Its application_name at the primary. */
  readonly name: string
  /** A replication slot that is made for it at the primary. */
  readonly slot?: string
}

/** A real streaming standby of a running primary: a base backup by copy, without pg_basebackup, which npm's PostgreSQL does not have. */
export async function startStandby(primary: PostgresServer, options: StandbyOptions): Promise<StandbyFixture> {
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-standby-'))
  const clients: pg.Client[] = []
  const open = async (url: string): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
    client.on('error', () => undefined)
    await client.connect()
    clients.push(client)
    return client
  }
  const source = await open(primary.adminUrl)
  await admitReplication(primary, source)
  if (options.slot !== undefined) await source.query('select pg_create_physical_replication_slot($1, true)', [options.slot])
  await copyData(primary, source, dir)
  const owner = statSync(join(primary.dir, 'data'))
  const conninfo = `host=127.0.0.1 port=${primary.port} user=${REPLICATOR} password=${PASSWORD} application_name=${options.name}`
  appendFileSync(
    join(dir, 'data', 'postgresql.auto.conf'),
    `primary_conninfo = '${conninfo}'\n${options.slot === undefined ? '' : `primary_slot_name = '${options.slot}'\n`}`,
  )
  writeFileSync(join(dir, 'data', 'standby.signal'), '')
  copyFileSync(primary.passwordFile, join(dir, 'superuser.password'))
  for (const file of ['data/standby.signal', 'data/backup_label', 'superuser.password']) chownSync(join(dir, file), owner.uid, owner.gid)
  const server = await startPostgres({ dir, version: options.version ?? 18, name: options.name })
  const admin = async (database = 'postgres') => {
    const url = new URL(server.adminUrl)
    url.pathname = `/${database}`
    return await open(url.toString())
  }
  const here = await admin()
  const streaming = await waitUntil(
    async () =>
      (await source.query(`select from pg_stat_replication where application_name = $1 and state = 'streaming'`, [options.name]))
        .rowCount === 1,
    30_000,
  )
  if (!streaming) throw new Error(`the standby ${options.name} does not stream`)
  let held: number | null = null
  const releaseWal = () => {
    if (held !== null) process.kill(held, 'SIGCONT')
    held = null
  }
  return {
    server,
    name: options.name,
    admin,
    holdWal: async () => {
      const { rows } = await here.query<{ pid: number }>('select pid from pg_stat_wal_receiver')
      const pid = rows[0]?.pid
      if (pid === undefined) throw new Error('the standby receives no WAL')
      process.kill(pid, 'SIGSTOP')
      held = pid
    },
    releaseWal,
    detach: async () => {
      await here.query(`alter system set primary_conninfo = ''`)
      await here.query('select pg_reload_conf()')
      const alone = await waitUntil(async () => (await here.query('select from pg_stat_wal_receiver')).rowCount === 0, 30_000)
      if (!alone) throw new Error(`the standby ${options.name} still receives WAL`)
    },
    kill: async () => {
      await server.kill()
      // Suspended it would not notice, and the primary would go on counting it.
      if (held !== null) process.kill(held, 'SIGKILL')
      held = null
    },
    promote: async () => {
      releaseWal()
      const { rows } = await here.query<{ promoted: boolean }>('select pg_promote(true, 30) as promoted')
      if (rows[0]?.promoted !== true) throw new Error('the standby was not promoted')
    },
    stop: async () => {
      releaseWal()
      await Promise.all(clients.map(async c => await c.end().catch(() => undefined)))
      await server.stop()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

async function admitReplication(primary: PostgresServer, admin: pg.Client): Promise<void> {
  const { rowCount } = await admin.query('select from pg_roles where rolname = $1', [REPLICATOR])
  if (rowCount === 0) await admin.query(`create role ${REPLICATOR} login replication password '${PASSWORD}'`)
  appendFileSync(join(primary.dir, 'data', 'pg_hba.conf'), 'host replication all 127.0.0.1/32 scram-sha-256\n')
  await admin.query('select pg_reload_conf()')
}

/** The copy is consistent because replay begins at the label's checkpoint; what the running server has to itself is left out. */
async function copyData(primary: PostgresServer, admin: pg.Client, dir: string): Promise<void> {
  const from = join(primary.dir, 'data')
  const to = join(dir, 'data')
  await admin.query(`select pg_backup_start('standby', true)`)
  // As root it keeps the owner, who runs the server. A temporary file may vanish on the way, which does not matter.
  await promisify(execFile)('cp', ['-a', from, to]).catch((error: unknown) => {
    const output = String((error as { stderr?: unknown }).stderr)
    if (!output.split('\n').every(line => line === '' || line.includes('No such file or directory'))) throw error
  })
  const { rows } = await admin.query<{ labelfile: string }>('select labelfile from pg_backup_stop(false)')
  const owner = statSync(from)
  for (const own of ['postmaster.pid', 'postmaster.opts', 'pg_wal', 'pg_replslot', 'pg_dynshmem', 'pg_notify', 'pg_stat_tmp'])
    rmSync(join(to, own), { recursive: true, force: true })
  for (const folder of ['pg_wal', 'pg_wal/archive_status', 'pg_wal/summaries', 'pg_replslot', 'pg_dynshmem', 'pg_notify', 'pg_stat_tmp']) {
    mkdirSync(join(to, folder), { mode: 0o700 })
    chownSync(join(to, folder), owner.uid, owner.gid)
  }
  writeFileSync(join(to, 'backup_label'), rows[0]?.labelfile ?? '', { mode: 0o600 })
}
