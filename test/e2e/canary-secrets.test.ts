import { randomBytes } from 'node:crypto'
import { chmodSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse, stringify } from 'yaml'
import { REGIONS, type SandboxRegion } from '../../sandbox/layout.ts'
import { watchProcess } from './process-watch.ts'
import { COMMAND_TIMEOUT_MS, useScene } from './scene.ts'
import { startVaultStandIn, type VaultStandIn } from './vault-stand-in.ts'

/**
 * Every secret that a command meets is looked for wherever it could have been left: what it prints, its journal, both kinds of tables,
 * the servers' own logs with every statement in them, and the process list while it runs.
 */
const scene = useScene(['canary'])
const made = (what: string) => `canary-${what}-${randomBytes(9).toString('base64url')}`
const TOKEN = made('vault-token')
const HEADER = TOKEN
const WRONG = { password: made('wrong-password'), url: made('in-a-url'), kafka: made('wrong-kafka'), printed: made('printed') }

/** What was left where, by the name of the place. */
const places = new Map<string, string>()
const canaries = new Map<string, string>()
let vault: VaultStandIn
let config: string
let env: Readonly<Record<string, string>>
const state = () => join(scene.dir, 'state')
const secretFile = (name: string) => scene.rig.sandbox.secrets.file(name)
const file = (name: string, text: string, mode = 0o600) => {
  const path = join(scene.dir, name)
  writeFileSync(path, text)
  chmodSync(path, mode)
  return path
}

type Written = {
  controlPlane: { url: string; password: unknown }
  regions: Record<
    string,
    { database: Record<string, { url: string; password: unknown }>; kafka: Record<string, unknown>; fences: Record<string, unknown>[] }
  >
}

/** Replaces the service's secret in one step, as its file sink does. */
function deliver(region: SandboxRegion, secret: string): void {
  const target = secretFile(`${region}.app_writer`)
  writeFileSync(`${target}.new`, secret, { mode: 0o600 })
  renameSync(`${target}.new`, target)
}

function written(name: string, change: (config: Written) => void): string {
  const copy = parse(readFileSync(scene.rig.config, 'utf8')) as Written
  for (const region of REGIONS) plant(copy, region)
  copy.controlPlane.password = { env: 'CANARY_CONTROL_PLANE' }
  change(copy)
  return file(name, stringify(copy, { aliasDuplicateObjects: false }))
}

/** Secrets from the environment, from files and from commands; sinks of a command and of Vault; a token in a header. */
function plant(copy: Written, name: SandboxRegion): void {
  const region = copy.regions[name]
  if (region === undefined) throw new Error(`no ${name}`)
  const dump = join(scene.dir, 'children')
  const told = `{ env; tr '\\0' ' ' < /proc/$$/cmdline; tr '\\0' ' ' < /proc/$PPID/cmdline; } >> ${dump}`
  const operator = secretFile(`${name}.homeregion_operator`)
  const script = file(`secret-${name}.sh`, `#!/bin/sh\n${told}\ncat ${operator}\n`, 0o700)
  const sink = file(
    `sink-${name}.sh`,
    `#!/bin/sh\n${told}\ncat > ${scene.dir}/delivered.$$ && cp ${scene.dir}/delivered.$$ ${secretFile(`${name}.app_writer`)}\n`,
    0o700,
  )
  const wall = file(
    `wall-${name}.sh`,
    `#!/bin/sh\n${told}\ncase $1 in apply) touch ${scene.dir}/wall-${name};; lift) rm -f ${scene.dir}/wall-${name};; *) test -e ${scene.dir}/wall-${name};; esac\n`,
    0o700,
  )
  const admin = region.database['admin']
  if (admin !== undefined && name === 'region-a') admin.password = { env: 'CANARY_ADMIN' }
  const login = region.database['operator']
  if (login !== undefined) login.password = { command: [script] }
  const call = (method: string) => ({ method, url: `${vault.address}/fence/${name}`, expectStatus: 200 })
  const to =
    name === 'region-a'
      ? { command: [sink] }
      : { vault: { address: vault.address, path: 'app/writer', key: 'password', token: { file: file('vault-token', TOKEN) } } }
  region.fences = [
    ...region.fences.map(f => (f['kind'] === 'credentials' ? { ...f, roles: [{ role: 'app_writer', sink: to }] } : f)),
    { name: 'wall', kind: 'exec', apply: [wall, 'apply'], verify: [wall, 'verify'], lift: [wall, 'lift'] },
    {
      name: 'cloud',
      kind: 'http',
      apply: call('PUT'),
      verify: call('GET'),
      lift: call('DELETE'),
      headers: { authorization: { env: 'CANARY_HEADER' } },
    },
  ]
}

let commands = 0
async function run(
  args: readonly string[],
  expected: readonly number[],
  change: { config?: string; env?: Record<string, string> } = {},
): Promise<void> {
  const started = scene.rig.startCli(args, {
    timeoutMs: COMMAND_TIMEOUT_MS,
    env: { ...env, HOMEREGION_CONFIG: change.config ?? config, HOMEREGION_STATE_DIR: state(), HOMEREGION_DEBUG: '1,kafka', ...change.env },
  })
  const watch = watchProcess(started.pid)
  const result = await started.done
  watch.stop()
  commands += 1
  places.set(`output of ${commands}: ${args.join(' ')}`, result.stdout + result.stderr)
  for (const [what, text] of watch.seen()) places.set(`${what.slice(0, 60)} of ${args.join(' ')} ${places.size}`, text)
  keep()
  expect(expected, `${args.join(' ')}\n${result.stdout}${result.stderr}`).toContain(result.code)
}

/** Secrets change while they are rotated: each is one more to look for. */
function keep(): void {
  for (const region of REGIONS) {
    const secret = readFileSync(secretFile(`${region}.app_writer`), 'utf8')
    canaries.set(`app_writer of ${region} ${secret.slice(0, 3)}`, secret)
  }
}

const admins: pg.Client[] = []

beforeAll(async () => {
  const { controlPlane, regions } = scene.rig.running
  vault = await startVaultStandIn(TOKEN, secret => deliver('region-b', secret))
  const adminPassword = (url: string) => decodeURIComponent(new URL(url).password)
  env = {
    CANARY_CONTROL_PLANE: scene.rig.sandbox.secrets.read('control-plane.homeregion_operator'),
    CANARY_ADMIN: adminPassword(regions['region-a'].postgres.adminUrl),
    CANARY_HEADER: HEADER,
  }
  for (const name of readdirSync(join(secretFile('x'), '..'))) canaries.set(name, readFileSync(secretFile(name), 'utf8'))
  for (const [name, secret] of Object.entries({ ...env, ...WRONG, TOKEN })) canaries.set(name, secret)
  canaries.set('admin of region-b', adminPassword(regions['region-b'].postgres.adminUrl))
  canaries.set('admin of the control plane', adminPassword(controlPlane.adminUrl))
  for (const region of REGIONS) canaries.set(`Kafka admin of ${region}`, regions[region].kafka.admin.password)
  config = written('homeregion.yaml', () => undefined)
  for (const where of ['control-plane', ...REGIONS] as const) {
    const admin = await scene.rig.pg(where)
    admins.push(admin)
    await admin.query(`alter system set log_statement = 'all'`)
    await admin.query(`alter system set log_min_duration_statement = 0`)
    await admin.query(`alter system set log_parameter_max_length_on_error = -1`)
    await admin.query('select pg_reload_conf()')
  }
})
afterAll(async () => {
  for (const region of REGIONS)
    await scene.rig.cli(['fence', 'lift', region, '--as-target', '--yes', '--reason', 'the test is over'], {
      env: { ...env, HOMEREGION_CONFIG: config, HOMEREGION_STATE_DIR: state() },
    })
  for (const admin of admins) {
    await admin.query('alter system reset log_statement')
    await admin.query('alter system reset log_min_duration_statement')
    await admin.query('alter system reset log_parameter_max_length_on_error')
    await admin.query('select pg_reload_conf()')
  }
  await vault.stop()
})

const why = ['--yes', '--reason', 'looking for canaries']

test('commands that do what they should are run', async () => {
  await run(['config', 'validate'], [0])
  await run(['config', 'show'], [0])
  await run(['doctor'], [0, 2, 3])
  await run(['status', '-o', 'json'], [0])
  await run(['init', '--dry-run'], [0, 2])
  for (const region of REGIONS) await run(['fence', 'plan', region], [0])
  await run(['fence', 'audit', 'region-a'], [0, 3])
  await run(['plan', scene.key('canary'), '--to', 'region-b'], [0, 2])
  for (const region of REGIONS) {
    await run(['fence', 'apply', region, ...why], [0])
    await run(['fence', 'probe', region, '-o', 'json'], [0])
    await run(['fence', 'status', region], [0])
    await run(['fence', 'lift', region, '--as-target', ...why], [0])
    await run(['credentials', 'rotate', region, '--yes'], [0])
  }
  await run(['transfer', scene.key('canary'), '--to', 'region-b', '--confirm', scene.key('canary'), '--observe', '0s'], [0])
}, 240_000)

test('commands that fail in every way that knows a secret are run', async () => {
  const loud = file(
    'loud.sh',
    `#!/bin/sh\necho ${WRONG.printed} >&2\ncat >&2\ncat ${secretFile('region-a.homeregion_operator')} >&2\nexit 9\n`,
    0o700,
  )
  const withSink = written('sink.yaml', c => {
    for (const f of c.regions['region-a']?.fences ?? [])
      if (f['kind'] === 'credentials') f['roles'] = [{ role: 'app_writer', sink: { command: [loud] } }]
  })
  await run(['fence', 'apply', 'region-a', '--fence', 'credentials', ...why], [7], { config: withSink })
  await run(['fence', 'lift', 'region-a', '--fence', 'credentials', '--as-target', ...why], [0, 7])
  vault.refuse(true)
  await run(['fence', 'apply', 'region-b', '--fence', 'credentials', ...why], [7])
  vault.refuse(false)
  await run(['fence', 'lift', 'region-b', '--fence', 'credentials', '--as-target', ...why], [0, 7])

  const operator = (change: (login: { url: string; password: unknown }) => void, name: string) =>
    written(name, c => {
      const login = c.regions['region-a']?.database['operator']
      if (login !== undefined) change(login)
    })
  const refused = operator(login => void (login.password = { file: file('wrong', WRONG.password) }), 'refused.yaml')
  await run(['fence', 'apply', 'region-a', '--fence', 'boundary', ...why], [69, 78, 7], { config: refused })
  const silent = operator(login => void (login.password = { command: [loud] }), 'silent.yaml')
  await run(['fence', 'status', 'region-a'], [0, 9, 69, 78], { config: silent })
  const inUrl = operator(login => void (login.url = login.url.replace('@', `:${WRONG.url}@`)), 'in-url.yaml')
  await run(['config', 'validate'], [78], { config: inUrl })
  await run(['status'], [78], { config: inUrl })
  await run(['status'], [64, 69, 78], { env: { HOMEREGION_CONTROL_PLANE_URL: `postgres://somebody:${WRONG.url}@127.0.0.1:1/nowhere` } })
  await run(['fence', 'apply', 'region-a', '--fence', 'cloud', ...why], [7, 78, 9], { env: { CANARY_HEADER: WRONG.printed } })
  await run(['fence', 'lift', 'region-a', '--fence', 'cloud', '--as-target', ...why], [0])
  const kafka = written('kafka.yaml', c => {
    const region = c.regions['region-a']
    if (region !== undefined)
      region.kafka['sasl'] = {
        mechanism: 'scram-sha-256',
        username: 'homeregion_operator',
        password: { file: file('wrong-kafka', WRONG.kafka) },
      }
  })
  await run(['fence', 'apply', 'region-a', '--fence', 'kafka', ...why], [7, 69], { config: kafka })
  await run(['doctor'], [0, 2, 3, 69, 78], { config: kafka })
}, 240_000)

test('none of them left a secret anywhere', async () => {
  for (const secret of vault.received) canaries.set(`given to Vault ${secret.slice(0, 3)}`, secret)
  for (const name of readdirSync(scene.dir).filter(n => n.startsWith('delivered.')))
    canaries.set(`given to the sink ${name}`, readFileSync(join(scene.dir, name), 'utf8'))
  expect(vault.received.length).toBeGreaterThan(0)
  expect([...canaries.keys()].some(k => k.startsWith('given to the sink'))).toBe(true)
  for (const name of readdirSync(state(), { recursive: true, encoding: 'utf8' })) {
    const path = join(state(), name)
    if (/\.[a-z]+$/.test(name)) places.set(`the journal folder, ${name}`, readFileSync(path, 'utf8'))
  }
  expect([...places.keys()].some(p => p.startsWith('the journal folder'))).toBe(true)
  places.set('what children were given', readFileSync(join(scene.dir, 'children'), 'utf8'))
  const { controlPlane, regions } = scene.rig.running
  for (const [i, admin] of admins.entries()) places.set(`tables of ${['the control plane', ...REGIONS][i] ?? ''}`, await everyRow(admin))
  for (const server of [controlPlane, ...REGIONS.map(r => regions[r].postgres)])
    places.set(`log ${server.logFile}`, readFileSync(server.logFile, 'utf8'))
  for (const region of REGIONS) places.set(`log ${regions[region].kafka.logFile}`, readFileSync(regions[region].kafka.logFile, 'utf8'))

  // That something is looked at in each kind of place.
  expect(readFileSync(regions['region-a'].postgres.logFile, 'utf8')).toMatch(/ALTER ROLE .?app_writer.? .*SCRAM-SHA-256/i)
  expect([...places.keys()].filter(p => p.startsWith('environ of a child')).length).toBeGreaterThan(0)
  const found = [...places].flatMap(([place, text]) =>
    [...canaries].flatMap(([name, secret]) => (forms(secret).some(form => text.includes(form)) ? [`${name}: ${place}`] : [])),
  )
  expect([...new Set(found)]).toEqual([])
})

function forms(secret: string): readonly string[] {
  return [...new Set([secret, encodeURIComponent(secret), Buffer.from(secret).toString('base64'), Buffer.from(secret).toString('hex')])]
}

/** Every column of every row of ours, and what was in the statistics of statements. */
async function everyRow(admin: pg.Client): Promise<string> {
  const { rows } = await admin.query<{ name: string }>(
    `select c.oid::regclass::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where c.relkind in ('r', 'p') and (n.nspname like 'homeregion%' or n.nspname = 'public')`,
  )
  const texts: string[] = []
  for (const { name } of rows) {
    const found = await admin.query<{ row: string }>(`select t::text as row from ${name} t`)
    texts.push(...found.rows.map(r => r.row))
  }
  const running = await admin.query<{ query: string }>('select query from pg_stat_activity where pid <> pg_backend_pid()')
  return [...texts, ...running.rows.map(r => r.query)].join('\n')
}
