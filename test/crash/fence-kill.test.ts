import { randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parse, stringify } from 'yaml'
import { REGIONS, type SandboxRegion } from '../../sandbox/layout.ts'
import { accessLists } from '../integration/read-only-fixture.ts'
import type { CliResult } from '../rig/cli.ts'
import { useRig } from '../rig/use-rig.ts'
import { accessRules } from './access-rules.ts'

const rig = useRig()
const dir = mkdtempSync(join(tmpdir(), 'homeregion-fence-kill-'))
// Only a bound: a command that hangs is killed and fails its test.
const COMMAND_MS = 60_000
const FENCES = ['boundary', 'credentials', 'read-only', 'kafka', 'exec', 'http'] as const
type FenceName = (typeof FENCES)[number]

const closed = new Set<string>()
let outside: Server
let config: string

beforeAll(async () => {
  outside = createServer((request, response) => {
    const name = request.url ?? ''
    if (request.method === 'PUT') closed.add(name)
    if (request.method === 'DELETE') closed.delete(name)
    response.writeHead(request.method === 'GET' && !closed.has(name) ? 404 : 200).end()
  })
  await new Promise<void>(resolve => outside.listen(0, '127.0.0.1', resolve))
  config = withOutsideFences()
  const key = `fence-kill-${randomBytes(3).toString('hex')}`
  // A region that owns nothing is not opened.
  expectDone(await cli(['key', 'add', `${key}-a`, '--home', 'region-a']), 'key add')
  expectDone(await cli(['key', 'add', `${key}-b`, '--home', 'region-b']), 'key add')
})
afterAll(async () => {
  for (const region of REGIONS) await lift(region, 'boundary', undefined, FENCES)
  await new Promise(resolve => outside.close(resolve))
  rmSync(dir, { recursive: true, force: true })
})

/** The rig's configuration, with a fence of each kind that is somebody else's. */
function withOutsideFences(): string {
  type Written = { regions: Record<string, { fences: unknown[] }> }
  const written = parse(readFileSync(rig.current.config, 'utf8')) as Written
  const address = outside.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  for (const [name, region] of Object.entries(written.regions)) {
    const flag = join(dir, `${name}.closed`)
    const call = (method: string) => ({ method, url: `http://127.0.0.1:${port}/${name}`, expectStatus: 200 })
    region.fences.push(
      { name: 'exec', kind: 'exec', apply: ['touch', flag], verify: ['test', '-e', flag], lift: ['rm', '-f', flag] },
      { name: 'http', kind: 'http', apply: call('PUT'), verify: call('GET'), lift: call('DELETE') },
    )
  }
  const file = join(dir, 'homeregion.yaml')
  writeFileSync(file, stringify(written, { aliasDuplicateObjects: false }))
  return file
}

async function cli(args: readonly string[], fault?: string): Promise<CliResult> {
  const env = {
    HOMEREGION_CONFIG: config,
    HOMEREGION_STATE_DIR: join(dir, 'state'),
    ...(fault === undefined ? {} : { HOMEREGION_FAULT: fault }),
  }
  return await rig.current.cli(args, { timeoutMs: COMMAND_MS, env })
}

const only = (names: readonly string[]) => ['--fence', ...names, '--yes', '--reason', 'a test of crashes']
const apply = async (region: SandboxRegion, fence: FenceName, fault?: string) =>
  await cli(['fence', 'apply', region, ...only([fence])], fault)
const lift = async (region: SandboxRegion, fence: FenceName, fault?: string, names: readonly string[] = [fence]) =>
  await cli(['fence', 'lift', region, ...only(names)], fault)

const points = (result: CliResult) => [...result.stderr.matchAll(/^fault-point \d+ (fence:\S+)$/gm)].map(m => m[1] ?? '')
const said = (result: CliResult) => result.stdout + result.stderr

/** Everything a fence changes or could: logins, memberships, access lists, records, rules of Kafka, what is outside. */
async function stateOf(region: SandboxRegion): Promise<readonly string[]> {
  const admin = await rig.current.pg(region)
  try {
    const { rows } = await admin.query<{ line: string }>(`
      select format('%s login %s until %s %s', rolname, rolcanlogin, rolvaliduntil, case when rolname <> 'app_writer' then md5(rolpassword) end) as line
      from pg_authid
      union all select format('%s in %s by %s %s', member::regrole, roleid::regrole, grantor::regrole, admin_option) from pg_auth_members
      union all select format('fence %s %s', name, state) from homeregion.fence
      union all select format('fence item %s', to_jsonb(i)) from homeregion.fence_item i
      union all select format('writable %s', key) from homeregion.writable
      order by 1`)
    const kafka = await accessRules(rig.current.running.regions[region].kafka)
    const called = [
      closed.has(`/${region}`) ? ['http is closed'] : [],
      existsSync(join(dir, `${region}.closed`)) ? ['exec is closed'] : [],
    ].flat()
    return [...(await accessLists(admin)), ...rows.map(r => r.line), ...kafka, ...called]
  } finally {
    await admin.end()
  }
}

/** The service's secret lets it in: SQLSTATE, or null. */
async function login(region: SandboxRegion): Promise<string | null> {
  const url = new URL(rig.current.running.regions[region].postgres.adminUrl)
  url.pathname = '/app'
  url.username = 'app_writer'
  url.password = readFileSync(rig.current.sandbox.secrets.file(`${region}.app_writer`), 'utf8')
  const client = new pg.Client({ connectionString: url.href, connectionTimeoutMillis: 5_000 })
  client.on('error', () => undefined)
  return await client
    .connect()
    .then(
      () => null,
      (error: unknown) => (error instanceof pg.DatabaseError ? (error.code ?? '?') : String(error)),
    )
    .finally(async () => await client.end().catch(() => undefined))
}

async function expectAsBefore(region: SandboxRegion, before: readonly string[], what: string): Promise<void> {
  const now = await stateOf(region)
  expect({ gone: before.filter(l => !now.includes(l)), new: now.filter(l => !before.includes(l)) }, what).toEqual({ gone: [], new: [] })
  expect(await login(region), what).toBeNull()
}

function expectDone(result: CliResult, what: string): void {
  expect(result.code, `${what}\n${said(result)}`).toBe(0)
}

test.each(FENCES)(
  'a command that is killed between any two changes of the %s fence is finished by the same verb, and undone by a lift',
  async fence => {
    const before = { 'region-a': await stateOf('region-a'), 'region-b': await stateOf('region-b') }
    const [counted, undone] = [await apply('region-a', fence, 'count'), await lift('region-a', fence, 'count')]
    expectDone(counted, 'counting apply')
    expectDone(undone, 'counting lift')
    const [up, down] = [points(counted), points(undone)]
    expect(up.length).toBeGreaterThan(1)
    expect(down.length).toBeGreaterThan(0)
    await expectAsBefore('region-a', before['region-a'], 'after counting')

    /** One of them may have nothing to do this time, as ending sessions; then the command ends. */
    const killed = (result: CliResult, what: string) => {
      expect([null, 0], `${what}\n${said(result)}`).toContain(result.code)
      return result.signal === 'SIGKILL' ? 1 : 0
    }
    const again = async () => {
      let kills = 0
      for (let i = 1; i <= Math.max(up.length, down.length); i += 1) {
        if (i <= up.length) kills += killed(await apply('region-a', fence, `kill@${i}`), `apply, ${up[i - 1] ?? ''}`)
        expectDone(await apply('region-a', fence), `apply after ${up[i - 1] ?? ''}`)
        if (i <= down.length) kills += killed(await lift('region-a', fence, `kill@${i}`), `lift, ${down[i - 1] ?? ''}`)
        expectDone(await lift('region-a', fence), `lift after ${down[i - 1] ?? ''}`)
        await expectAsBefore(
          'region-a',
          before['region-a'],
          `applied again after ${up[i - 1] ?? ''}, lifted again after ${down[i - 1] ?? ''}`,
        )
      }
      return kills
    }
    const back = async () => {
      let kills = 0
      for (const [i, point] of up.entries()) {
        kills += killed(await apply('region-b', fence, `kill@${i + 1}`), `apply, ${point}`)
        expectDone(await lift('region-b', fence), `lift after ${point}`)
        await expectAsBefore('region-b', before['region-b'], `lifted after ${point}`)
      }
      return kills
    }
    const [first, second] = await Promise.all([again(), back()])
    expect(first).toBeGreaterThanOrEqual(up.length + down.length - 1)
    expect(second).toBeGreaterThanOrEqual(up.length - 1)
  },
  // Some forty commands, one after the other: half a minute on a quiet machine.
  400_000,
)
