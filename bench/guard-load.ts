import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import pg from 'pg'
import { type BenchServer, PASSWORD, PGBENCH, WRITER } from './guard-server.ts'

/** One transaction of a client; `:entry` is a random row, and `pauseUs` stands for the way to the server and back, once per statement. */
export type Load = { readonly statements: (schema: string) => readonly string[]; readonly pauseUs: number }
type Size = { readonly clients: number; readonly seconds: number }

/** Transactions per second of `load` on the tables of one schema. */
export async function runLoad(server: BenchServer, load: Load, schema: string, size: Size): Promise<number> {
  return server.driver === 'pgbench' ? await byPgbench(server.port, load, schema, size) : await byNode(server.port, load, schema, size)
}

async function byPgbench(port: number, load: Load, schema: string, size: Size): Promise<number> {
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-pgbench-'))
  const file = join(dir, 'load.sql')
  const pause = load.pauseUs === 0 ? '' : `\\sleep ${load.pauseUs} us\n`
  writeFileSync(
    file,
    `\\set entry random(1, 1000)\n${load
      .statements(schema)
      .map(s => `${s};\n${pause}`)
      .join('')}`,
  )
  try {
    const { stdout } = await promisify(execFile)(
      PGBENCH,
      [
        '-h',
        '127.0.0.1',
        '-p',
        String(port),
        '-U',
        WRITER,
        '-n',
        '-M',
        'prepared',
        '-c',
        String(size.clients),
        '-j',
        '2',
        '-T',
        String(size.seconds),
        '-f',
        file,
        'postgres',
      ],
      { env: { PATH: process.env.PATH ?? '', PGPASSWORD: PASSWORD }, timeout: (size.seconds + 30) * 1000 },
    )
    return Number(/tps = ([\d.]+) \(without/.exec(stdout)?.[1])
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}

async function byNode(port: number, load: Load, schema: string, size: Size): Promise<number> {
  const clients = await Promise.all(
    Array.from({ length: size.clients }, async () => {
      const client = new pg.Client({ host: '127.0.0.1', port, user: WRITER, password: PASSWORD, database: 'postgres' })
      await client.connect()
      return client
    }),
  )
  const end = performance.now() + size.seconds * 1000
  let done = 0
  const drive = async (client: pg.Client) => {
    while (performance.now() < end) {
      const entry = String(1 + Math.floor(Math.random() * 1000))
      for (const [i, text] of load.statements(schema).entries()) {
        const wanted = text.includes(':entry')
        await client.query({ name: `${schema}-${i}`, text: text.replace(':entry', '$1'), values: wanted ? [entry] : [] })
        if (load.pauseUs > 0) await sleep(load.pauseUs / 1000)
      }
      done += 1
    }
  }
  await Promise.all(clients.map(drive))
  await Promise.all(clients.map(async c => await c.end()))
  return done / size.seconds
}
