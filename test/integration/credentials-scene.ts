import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { buildSync } from 'esbuild'
import pg from 'pg'
import { APP_DATABASE } from '../../sandbox/layout.ts'
import type { PostgresVersion } from '../../sandbox/postgres-binaries.ts'
import { scramVerifier } from '../../src/adapters/postgres-region/scram-verifier.ts'
import type { Config, RegionConfig, SecretSink } from '../../src/domain/config.ts'
import type { Fence } from '../../src/domain/fence.ts'
import type { FaultPoint } from '../../src/domain/ports.ts'
import { type RegionFixture, startRegion } from './boundary-fixture.ts'
import { fenceOf } from './credentials-fence-of.ts'

export const OLD = 'old-secret-canary-4711'
/** Could log in before; could not, and is valid for a while. */
export const ROLES = ['app_writer', 'app_idle'] as const

export type RoleState = { readonly login: boolean; readonly valid: string | null; readonly password: string | null }

export type CredentialsScene = {
  readonly fixture: RegionFixture
  readonly admin: pg.Client
  readonly config: Config
  readonly env: NodeJS.ProcessEnv
  /** What the service reads. */
  secretFile(role: string): string
  held(this: void, role: string): string
  region(change?: {
    readonly sinks?: Readonly<Record<string, SecretSink>>
    readonly roles?: readonly string[]
    readonly fencer?: string
  }): RegionConfig
  fence(region?: RegionConfig, fault?: FaultPoint): Fence
  /** apply or lift in a process of its own, killed at that point; true: it was. */
  killed(verb: 'apply' | 'lift', point: number): Promise<boolean>
  role(name: string): Promise<RoleState>
  /** Every role but those of the fence. */
  others(): Promise<string>
  /** As at the beginning: no fence, old secrets, LOGIN as it was. */
  reset(): Promise<void>
  /** SQLSTATE of a login, or `in`. */
  login(role: string, password: string, port?: number): Promise<string>
  log(): string
  stop(): Promise<void>
}

const NO_FAULT: FaultPoint = async () => undefined
const ADMIN_ENV = 'SCENE_ADMIN'

export async function startScene(version: PostgresVersion): Promise<CredentialsScene> {
  const fixture = await startRegion({
    version,
    prepare: `create table public.hammered (id bigserial primary key, by_client text, at timestamptz not null default clock_timestamp());
      grant insert, select on public.hammered to app_writer; grant usage on sequence public.hammered_id_seq to app_writer;
      create role app_idle nologin valid until '2099-01-01';
      create role app_member login in role app_writer`,
  })
  const dir = mkdtempSync(join(tmpdir(), 'homeregion-credentials-'))
  const admin = await fixture.login('postgres')
  await admin.query(`alter system set log_statement = 'all'`)
  await admin.query('select pg_reload_conf()')
  const adminPassword = decodeURIComponent(new URL(fixture.server.adminUrl).password)
  const env = { PATH: process.env['PATH'], [ADMIN_ENV]: adminPassword }
  const secretFile = (role: string) => join(dir, role)
  const url = (role: string) => `postgres://${role}@127.0.0.1:${fixture.server.port}/${APP_DATABASE}`
  const fences: Fence[] = []

  let bundled: string | null = null
  // One file starts in a fraction of the time that dozens take, and it is started dozens of times.
  const script = () => {
    bundled ??= bundleProcess(dir)
    return bundled
  }

  const region: CredentialsScene['region'] = (change = {}) => {
    const roles = change.roles ?? ROLES
    return {
      ...fixture.region,
      database: {
        ...fixture.region.database,
        admin: { url: url('postgres'), password: { env: ADMIN_ENV } },
        fencer: change.fencer === undefined ? null : { url: url(change.fencer), password: { env: ADMIN_ENV } },
        writers: roles.map(role => ({ url: url(role), role, password: { file: secretFile(role) } })),
      },
      fences: [
        {
          name: 'credentials',
          kind: 'credentials',
          roles: roles.map(role => ({ role, sink: change.sinks?.[role] ?? { file: secretFile(role) } })),
        },
      ],
    }
  }
  const role = async (name: string): Promise<RoleState> => {
    const { rows } = await admin.query<RoleState>(
      'select rolcanlogin as login, rolvaliduntil::text as valid, rolpassword as password from pg_authid where rolname = $1',
      [name],
    )
    return rows[0] as RoleState
  }
  const reset = async () => {
    await admin.query('delete from homeregion.fence_item')
    await admin.query('delete from homeregion.fence')
    for (const name of ROLES) {
      await admin.query(`alter role ${name} ${name === 'app_idle' ? 'nologin' : 'login'} password '${scramVerifier(OLD)}'`)
      writeFileSync(secretFile(name), OLD)
    }
    await admin.query('grant connect on database app to app_idle').catch(() => undefined)
  }
  await reset()
  return {
    fixture,
    admin,
    config: fixture.config,
    env,
    secretFile,
    held: name => readFileSync(secretFile(name), 'utf8'),
    region,
    fence: (of = region(), fault = NO_FAULT) => {
      const made = fenceOf(of, fixture.config, env, fault)
      fences.push(made)
      return made
    },
    killed: async (verb, point) =>
      await runProcess(script(), {
        ...env,
        SCENE: JSON.stringify({ region: region(), config: fixture.config, verb }),
        HOMEREGION_FAULT: `kill@${point}`,
      }),
    role,
    others: async () => {
      const { rows } = await admin.query<{ all: string }>(
        `select json_agg(r order by rolname)::text as all from pg_authid r where rolname <> all ($1)`,
        [ROLES],
      )
      return rows[0]?.all ?? ''
    },
    reset,
    login: async (name, password, port = fixture.server.port) =>
      await loginState(`postgres://${name}@127.0.0.1:${port}/${APP_DATABASE}`, password),
    log: () => readFileSync(fixture.server.logFile, 'utf8'),
    stop: async () => {
      await Promise.all(fences.map(async f => await f.close()))
      await fixture.stop()
      rmSync(dir, { recursive: true, force: true })
    },
  }
}

async function loginState(url: string, password: string): Promise<string> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 })
  client.password = password
  client.on('error', () => undefined)
  try {
    await client.connect()
    return 'in'
  } catch (error) {
    return error instanceof pg.DatabaseError ? (error.code ?? '?') : String(error)
  } finally {
    await client.end().catch(() => undefined)
  }
}

function bundleProcess(dir: string): string {
  const outfile = join(dir, 'process.mjs')
  buildSync({
    entryPoints: [fileURLToPath(new URL('./credentials-process.ts', import.meta.url))],
    outfile,
    bundle: true,
    platform: 'node',
    format: 'esm',
    external: ['pg-native'],
    banner: { js: `import { createRequire } from 'node:module'; const require = createRequire(import.meta.url)` },
  })
  return outfile
}

const PROCESS_MS = 30_000

async function runProcess(script: string, env: NodeJS.ProcessEnv): Promise<boolean> {
  return await new Promise<boolean>((resolve, reject) => {
    const child = spawn(process.execPath, [script], {
      env,
      stdio: ['ignore', 'ignore', 'pipe'],
      timeout: PROCESS_MS,
    })
    let said = ''
    child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString('utf8')))
    child.once('error', reject)
    child.once('close', (code, signal) => {
      if (code === 0 || signal === 'SIGKILL') resolve(signal === 'SIGKILL')
      else reject(new Error(`the process ended with ${code ?? signal ?? '?'}: ${said}`))
    })
  })
}
