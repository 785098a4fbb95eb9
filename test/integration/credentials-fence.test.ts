import { readFileSync, writeFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { createConnection } from '../../src/adapters/postgres/connection.ts'
import { lookAtSessions } from '../../src/adapters/postgres-region/fences/role-sessions.ts'
import type { HomeregionError } from '../../src/domain/errors.ts'
import type { Fence } from '../../src/domain/fence.ts'
import type { Sink } from '../../src/domain/sink.ts'
import { liftStanding } from '../rig/lift-standing.ts'
import { codedError } from '../unit/coded-error.ts'
import { CAUSE, fenceOf } from './credentials-fence-of.ts'
import { type CredentialsScene, OLD, ROLES, startScene } from './credentials-scene.ts'
import { keepsWishesApart } from './fence-wishes.ts'
import { startHammer } from './hammer.ts'

const WAIT_MS = 20_000

describe.each([15, 18] as const)('the credentials fence on PostgreSQL %i', version => {
  let scene: CredentialsScene

  beforeAll(async () => {
    scene = await startScene(version)
  })
  afterAll(async () => {
    await scene.stop()
  })
  beforeEach(async () => {
    await scene.reset()
  })

  const proved = async (fence: Fence) => {
    const observations = await fence.verify()
    expect(observations.filter(o => o.verdict !== 'pass')).toEqual([])
    expect(observations.length).toBeGreaterThan(3)
  }
  const refused = async (work: () => Promise<unknown>): Promise<HomeregionError> => await codedError(work)
  const rows = async () => Number((await scene.admin.query<{ n: number }>('select count(*)::int as n from public.hammered')).rows[0]?.n)

  test('keeps wishes apart', async () => {
    const fence = scene.fence()
    await keepsWishesApart(fence)
    await fence.close()
  })

  test('ends logins, sessions and the old secret, and gives everything back', async () => {
    const before = await scene.role('app_writer')
    const idle = await scene.role('app_idle')
    const others = await scene.others()
    const fence = scene.fence()
    expect(await fence.status()).toEqual({ state: 'lifted', since: null, cause: null, asked: null, holds: [] })

    const steps = await fence.plan('apply')
    expect(steps.map(s => s.text)).toContain('ALTER ROLE "app_writer" NOLOGIN')
    const lines = await fence.apply(CAUSE)
    expect(lines).toContain('app_writer: NOLOGIN, password replaced')
    expect(lines).toContain('the old secret of app_writer: refused 28000 with NOLOGIN, 28P01 after the rotation')
    await proved(fence)
    expect(await fence.status()).toMatchObject({
      state: 'applied',
      cause: CAUSE,
      holds: ['app_idle: NOLOGIN, password replaced', 'app_writer: NOLOGIN, password replaced'],
    })
    const after = await scene.role('app_writer')
    expect(after).toMatchObject({ login: false, valid: null })
    expect(after.password).not.toBe(before.password)
    expect(await scene.others()).toBe(others)
    expect(await scene.login('app_writer', OLD)).toBe('28P01')
    expect(await scene.login('app_writer', scene.held('app_writer'))).toBe('28000')

    const secret = scene.held('app_writer')
    const { since } = await fence.status()
    const later = { reason: 'an incident', by: 'somebody else', runId: 'run-7' }
    await fence.apply(later)
    expect(scene.held('app_writer')).toBe(secret)
    expect(await fence.status()).toMatchObject({ state: 'applied', since, cause: CAUSE })

    const lifted = await liftStanding(fence, CAUSE)
    expect(lifted.join('\n')).toContain(
      `app_writer: LOGIN, new password, logged in as app_writer with file ${scene.secretFile('app_writer')}`,
    )
    expect(lifted.join('\n')).toContain('app_idle: NOLOGIN, new password, as it was')
    expect(await fence.status()).toMatchObject({ state: 'lifted' })
    expect(await liftStanding(fence, CAUSE)).toEqual(['credentials: nothing of it stood'])
    expect(await scene.role('app_writer')).toEqual({ ...after, login: true })
    expect(await scene.role('app_idle')).toMatchObject({ login: false, valid: idle.valid })
    expect(await scene.login('app_writer', secret)).toBe('in')
    expect(await scene.login('app_writer', OLD)).toBe('28P01')
    expect((await fence.verify()).some(o => o.verdict === 'fail')).toBe(true)
  })

  test('no secret is in what the server logs, nor in what is said', async () => {
    const fence = scene.fence()
    const said = JSON.stringify([
      await fence.plan('apply'),
      await fence.apply(CAUSE),
      await fence.verify(),
      await fence.status(),
      await fence.plan('lift'),
    ])
    const secrets = ROLES.map(scene.held)
    const also = JSON.stringify(await liftStanding(fence, CAUSE))
    for (const secret of [...secrets, OLD]) {
      expect(scene.log()).not.toContain(secret)
      expect(said + also).not.toContain(secret)
    }
    expect(scene.log()).toContain('ALTER ROLE "app_writer" PASSWORD')
  })

  test('a pool that reconnects all the time is refused from the moment the fence passed, in 20 rotations', async () => {
    const pool = startHammer(() => scene.held('app_writer'), scene.fixture.server.port, 6)
    onTestFinished(async () => await pool.stop())
    const fence = scene.fence(scene.region({ roles: ['app_writer'] }))
    let survivors = 0
    for (let i = 0; i < 20; i += 1) {
      const written = await rows()
      expect(await waitUntil(async () => (await rows()) > written, WAIT_MS)).toBe(true)
      await fence.apply(CAUSE)
      const fenced = await rows()
      const attempts = pool.refused()
      if (i % 5 === 0) await proved(fence)
      expect(await waitUntil(() => pool.refused() > attempts + 12, WAIT_MS)).toBe(true)
      survivors += (await rows()) - fenced
      await liftStanding(fence, CAUSE)
    }
    expect(survivors).toBe(0)
    expect(pool.sqlstates()).toEqual(expect.arrayContaining(['28000', '57P01']))
  })

  test('a session that logs in and then sleeps where nobody sees it does not survive', async () => {
    const observer = observing(scene)
    onTestFinished(async () => await observer.close())
    const client = lateWriter(scene)
    expect(await waitUntil(async () => (await lookAtSessions(observer, ['app_writer'])).starting.length > 0, WAIT_MS)).toBe(true)
    const before = await rows()
    const fence = scene.fence(scene.region({ roles: ['app_writer'] }))
    const lines = await fence.apply(CAUSE)
    expect(lines.join()).toContain('that were still logging in')
    expect(await client).not.toBe('wrote')
    expect(await rows()).toBe(before)
    await proved(fence)
  })

  test('a client that pauses inside the password exchange is not let in afterwards', async () => {
    const gate = await startPausingGate(scene.fixture.server.port)
    onTestFinished(async () => await gate.stop())
    const outcome = scene.login('app_writer', OLD, gate.port)
    expect(await waitUntil(() => gate.paused(), WAIT_MS)).toBe(true)
    const fence = scene.fence(scene.region({ roles: ['app_writer'] }))
    await fence.apply(CAUSE)
    gate.resume()
    expect(await outcome).not.toBe('in')
    await proved(fence)
  })

  test('a prepared transaction is named and left alone, and the fence does not pass before it is settled', async () => {
    const writer = await loginWith(scene, 'app_writer', OLD)
    await writer.query('begin')
    await writer.query(`insert into public.hammered (by_client) values ('prepared')`)
    await writer.query(`prepare transaction 'held-by-a-test'`)
    onTestFinished(async () => void (await scene.admin.query(`rollback prepared 'held-by-a-test'`).catch(() => undefined)))
    const fence = scene.fence(scene.region({ roles: ['app_writer'] }))
    expect((await fence.plan('apply')).map(s => s.text).join()).toContain(`prepared transaction 'held-by-a-test'`)
    const error = await refused(async () => await fence.apply(CAUSE))
    expect(error.code).toBe('fence-failed')
    expect(error.text.fact).toContain(`prepared transaction 'held-by-a-test' of app_writer`)
    expect(error.text.state).toContain('app_writer: NOLOGIN, password replaced (read back)')
    expect(await fence.status()).toMatchObject({ state: 'applying' })
    expect(
      (await fence.verify())
        .filter(o => o.verdict === 'fail')
        .map(o => o.observed)
        .join(),
    ).toContain('held-by-a-test')
    const secret = scene.held('app_writer')
    await scene.admin.query(`rollback prepared 'held-by-a-test'`)
    await fence.apply(CAUSE)
    expect(scene.held('app_writer')).toBe(secret)
    await proved(fence)
  })

  test('a sink that fails leaves the password as it was and the role locked, says so, and lift opens it with the old one', async () => {
    const before = await scene.role('app_writer')
    const fence = scene.fence(
      scene.region({ roles: ['app_writer'], sinks: { app_writer: { command: ['sh', '-c', 'cat > /dev/null; exit 3'] } } }),
    )
    const error = await refused(async () => await fence.apply(CAUSE))
    expect(error.code).toBe('fence-failed')
    expect(error.text.fact).toContain('the new secret of app_writer was not delivered: command sh: it ended with 3')
    expect(error.text.state).toContain('app_writer: NOLOGIN, password unchanged, a new secret was on its way to the sink (read back)')
    expect(await scene.role('app_writer')).toEqual({ ...before, login: false })
    expect(await scene.login('app_writer', OLD)).toBe('28000')
    const lines = await liftStanding(fence, CAUSE)
    expect(lines.join('\n')).toContain('app_writer: LOGIN, old password')
    expect(lines.join('\n')).toContain('NOTE the new secret of app_writer was not delivered')
    expect(await scene.role('app_writer')).toEqual(before)
    expect(await scene.login('app_writer', OLD)).toBe('in')
  })

  test('a sink that took the secret and then failed is given another one by lift', async () => {
    const file = scene.secretFile('app_writer')
    const broken = scene.fence(
      scene.region({ roles: ['app_writer'], sinks: { app_writer: { command: ['sh', '-c', `cat > '${file}'; exit 3`] } } }),
    )
    await refused(async () => await broken.apply(CAUSE))
    const neverInForce = readFileSync(file, 'utf8')
    expect(neverInForce).not.toBe(OLD)
    const fence = scene.fence(scene.region({ roles: ['app_writer'] }))
    expect((await liftStanding(fence, CAUSE)).join()).toContain('app_writer: LOGIN, new password, logged in as app_writer')
    expect(scene.held('app_writer')).not.toBe(neverInForce)
    expect(await scene.login('app_writer', scene.held('app_writer'))).toBe('in')
  })

  test('a sink that changed behind our back is found by the login at lift', async () => {
    const fence = scene.fence(scene.region({ roles: ['app_writer'] }))
    await fence.apply(CAUSE)
    writeFileSync(scene.secretFile('app_writer'), 'something-else')
    const error = await refused(async () => await liftStanding(fence, CAUSE))
    expect(error.code).toBe('fence-failed')
    expect(error.text.fact).toContain('(28P01)')
    expect(error.text.state).toContain('app_writer: LOGIN, new password')
    expect(error.text.next).toBe('homeregion credentials rotate region-a')
  })

  test('a sink that answers yes and keeps nothing leaves the old secret in force', async () => {
    const before = await scene.role('app_writer')
    const { fence } = deaf(scene)
    const error = await refused(async () => await fence.apply(CAUSE))
    expect(error.text.fact).toContain('took it, and holds another value when it is read back')
    expect(error.text.state).toContain('app_writer: NOLOGIN, password unchanged')
    expect(await scene.role('app_writer')).toEqual({ ...before, login: false })
    await liftStanding(fence, CAUSE)
    expect(await scene.role('app_writer')).toEqual(before)
  })

  test('a sink that lost the new secret is a fault at lift, whatever this process remembers', async () => {
    const fence = scene.fence(scene.region({ roles: ['app_writer'] }))
    await fence.apply(CAUSE)
    writeFileSync(scene.secretFile('app_writer'), '')
    const error = await refused(async () => await liftStanding(fence, CAUSE))
    expect(error.code).toBe('fence-failed')
    expect(error.text.fact).toContain(`file ${scene.secretFile('app_writer')} holds nothing`)
    expect(error.text.next).toBe('homeregion credentials rotate region-a')
  })

  test('a role that was renamed meanwhile gets its LOGIN back, and whoever has its name now does not', async () => {
    const fence = scene.fence(scene.region({ roles: ['app_writer'] }))
    await fence.apply(CAUSE)
    await scene.admin.query('alter role app_writer rename to app_renamed; create role app_writer')
    try {
      expect((await fence.status()).holds).toEqual(['app_renamed, which was app_writer: NOLOGIN, password replaced'])
      const lines = (await liftStanding(fence, CAUSE)).join()
      expect(lines).toContain('app_renamed, which was app_writer: LOGIN, new password')
      expect(await scene.role('app_renamed')).toMatchObject({ login: true })
      expect(await scene.role('app_writer')).toMatchObject({ login: false })
      expect(await recordRows(scene)).toBe(0)
    } finally {
      await scene.admin.query('drop role if exists app_writer; alter role app_renamed rename to app_writer')
    }
  })

  test('a role of the same name that is fenced as well keeps its own record', async () => {
    const fence = scene.fence(scene.region({ roles: ['app_idle'] }))
    await fence.apply(CAUSE)
    await scene.admin.query('alter role app_idle rename to app_renamed; create role app_idle login')
    try {
      await fence.apply(CAUSE)
      expect(await scene.role('app_idle')).toMatchObject({ login: false })
      await liftStanding(fence, CAUSE).catch((error: unknown) =>
        expect(error).toMatchObject({ text: { fact: expect.not.stringContaining('NOLOGIN') as string } }),
      )
      expect([await scene.role('app_renamed'), await scene.role('app_idle')]).toMatchObject([{ login: false }, { login: true }])
      expect(await recordRows(scene)).toBe(0)
    } finally {
      await scene.admin.query('drop role if exists app_idle; alter role app_renamed rename to app_idle')
    }
  })

  test('a role that is gone is said, and one made anew that is closed is a fault', async () => {
    const fence = scene.fence(scene.region({ roles: ['app_temporary'] }))
    for (const anew of [false, true]) {
      await scene.admin.query('drop role if exists app_temporary; create role app_temporary login')
      writeFileSync(scene.secretFile('app_temporary'), OLD)
      await fence.apply(CAUSE)
      await scene.admin.query(`drop role app_temporary; ${anew ? 'create role app_temporary' : ''}`)
      if (!anew) expect(await liftStanding(fence, CAUSE)).toEqual(['app_temporary: the role is gone, nothing to bring back'])
      else
        expect((await refused(async () => await liftStanding(fence, CAUSE))).text.fact).toContain(
          'app_temporary was dropped and made anew as NOLOGIN',
        )
      expect(await fence.status()).toMatchObject({ state: 'lifted' })
    }
    await scene.admin.query('drop role app_temporary')
  })

  test('a role that got its LOGIN back from outside is seen, and fenced again', async () => {
    const fence = scene.fence(scene.region({ roles: ['app_writer'] }))
    await fence.apply(CAUSE)
    await scene.admin.query('alter role app_writer login')
    expect(await fence.status()).toMatchObject({ holds: ['app_writer: LOGIN, given back from outside, password replaced'] })
    expect(
      (await fence.verify())
        .filter(o => o.verdict === 'fail')
        .map(o => o.observed)
        .join(),
    ).toContain('app_writer: LOGIN')
    await fence.apply(CAUSE)
    await proved(fence)
  })

  test('two operators at once take turns, and the secret in the sink is the one in force', async () => {
    const fences = [scene.fence(), scene.fence()]
    await Promise.all(fences.map(async f => await f.apply(CAUSE)))
    await liftStanding(fences[0] as Fence, CAUSE)
    expect(await scene.login('app_writer', scene.held('app_writer'))).toBe('in')
  })

  test.each([
    ['does not exist', ['app_writer', 'app_nobody'], 'config-invalid', 'there is no role app_nobody'],
    ['is a superuser', ['app_writer', 'app_boss'], 'privilege-missing', 'app_boss is a superuser'],
    ['is our own login', ['app_writer', 'homeregion_operator'], 'config-invalid', "homeregion_operator is this tool's own login"],
  ])('a role that %s is refused before anything is changed', async (_case, roles, code, why) => {
    await scene.admin.query('create role app_boss superuser').catch(() => undefined)
    const before = await scene.role('app_writer')
    const fence = scene.fence(scene.region({ roles }))
    for (const work of [async () => await fence.plan('apply'), async () => await fence.apply(CAUSE)]) {
      const error = await refused(work)
      expect(error.code).toBe(code)
      expect(error.text).toMatchObject({ fact: expect.stringContaining(why) as string, state: 'Nothing was changed.' })
    }
    expect(await scene.role('app_writer')).toEqual(before)
    expect(await fence.status()).toMatchObject({ state: 'lifted' })
  })

  test('an ordinary login is told what it lacks, and needs nothing more', async () => {
    await scene.admin.query(`drop role if exists fencer`)
    await scene.admin.query(`create role fencer login password '${decodeURIComponent(new URL(scene.fixture.server.adminUrl).password)}'`)
    await scene.admin.query('grant connect on database app to fencer')
    await scene.admin.query('grant select, insert, update, delete on homeregion.fence, homeregion.fence_item to fencer')
    onTestFinished(async () => {
      await scene.admin.query('drop owned by fencer')
      await scene.admin.query('drop role fencer')
    })
    const fence = scene.fence(scene.region({ roles: ['app_writer'], fencer: 'fencer' }))
    onTestFinished(async () => await fence.close())
    const error = await refused(async () => await fence.apply(CAUSE))
    expect(error.code).toBe('privilege-missing')
    expect(error.text.state).toBe('Nothing was changed.')
    const closes = (error.text.next ?? '').split(';').filter(sql => sql.trim() !== '')
    expect(closes.length).toBe(version === 15 ? 3 : 4)
    for (const sql of closes) await scene.admin.query(sql)
    const gate = await startPausingGate(scene.fixture.server.port)
    onTestFinished(async () => await gate.stop())
    const paused = scene.login('app_writer', OLD, gate.port)
    expect(await waitUntil(() => gate.paused(), WAIT_MS)).toBe(true)
    const hidden = lateWriter(scene)
    const before = await rows()
    await fence.apply(CAUSE)
    gate.resume()
    // Not ours to end while it is nobody: it is refused by NOLOGIN, which is asked after the password.
    expect(['28000', '57P01']).toContain((await paused).slice(0, 5))
    expect(await hidden).not.toBe('wrote')
    expect(await rows()).toBe(before)
    await proved(fence)
    await liftStanding(fence, CAUSE)
    expect(await scene.login('app_writer', scene.held('app_writer'))).toBe('in')
  })

  test('killed anywhere, apply goes on and lift gives everything back', { timeout: 240_000 }, async () => {
    const others = await scene.others()
    const points = { apply: 0, lift: 0 }
    for (const then of ['apply', 'lift'] as const) {
      for (let point = 1; ; point += 1) {
        await scene.reset()
        const before = new Map(await Promise.all(ROLES.map(async r => [r, await scene.role(r)] as const)))
        if (!(await scene.killed('apply', point))) break
        points.apply = point
        const phases = await phasesOf(scene)
        const fence = scene.fence()
        if (then === 'apply') {
          await fence.apply(CAUSE)
          await proved(fence)
        }
        await liftStanding(fence, CAUSE)
        for (const role of ROLES) {
          const now = await scene.role(role)
          const untouched = then === 'lift' && (phases.get(role) ?? 'closed') === 'closed'
          expect([point, then, role, now.login, now.valid]).toEqual([point, then, role, before.get(role)?.login, before.get(role)?.valid])
          expect([point, then, role, now.password === before.get(role)?.password]).toEqual([point, then, role, untouched])
        }
        expect(await scene.login('app_writer', scene.held('app_writer'))).toBe('in')
        expect(await recordRows(scene)).toBe(0)
      }
    }
    for (const then of ['apply', 'lift'] as const) {
      for (let point = 1; ; point += 1) {
        await scene.reset()
        const fence = scene.fence()
        await fence.apply(CAUSE)
        if (!(await scene.killed('lift', point))) break
        points.lift = point
        await (then === 'apply' ? fence.apply(CAUSE) : liftStanding(fence, CAUSE))
        if (then === 'apply') {
          await proved(fence)
          await liftStanding(fence, CAUSE)
        }
        expect(await scene.role('app_writer')).toMatchObject({ login: true, valid: null })
        expect(await scene.role('app_idle')).toMatchObject({ login: false })
        expect(await scene.login('app_writer', scene.held('app_writer'))).toBe('in')
        expect(await recordRows(scene)).toBe(0)
      }
    }
    expect(points).toEqual({ apply: 10, lift: 5 })
    expect(await scene.others()).toBe(others)
  })
})

/** A file that takes what it is given and keeps the old value. */
function deaf(scene: CredentialsScene): { fence: Fence } {
  const region = scene.region({ roles: ['app_writer'] })
  const place = 'file that keeps nothing'
  const sink: Sink = { place, readsBack: true, deliver: async () => undefined, read: async () => OLD }
  const fence = fenceOf(
    region,
    scene.config,
    scene.env,
    async () => undefined,
    () => sink,
  )
  onTestFinished(async () => await fence.close())
  return { fence }
}

async function phasesOf(scene: CredentialsScene): Promise<ReadonlyMap<string, string>> {
  const { rows } = await scene.admin.query<{ item: string; phase: string }>(
    `select item, former ->> 'phase' as phase from homeregion.fence_item`,
  )
  return new Map(rows.map(r => [r.item, r.phase]))
}

async function recordRows(scene: CredentialsScene): Promise<number> {
  const { rows } = await scene.admin.query<{ n: number }>(
    'select ((select count(*) from homeregion.fence) + (select count(*) from homeregion.fence_item))::int as n',
  )
  return rows[0]?.n ?? -1
}

function observing(scene: CredentialsScene) {
  return createConnection({
    login: { url: scene.region().database.admin?.url ?? '', password: { env: 'ADMIN' } },
    secrets: { read: async () => decodeURIComponent(new URL(scene.fixture.server.adminUrl).password) },
    name: 'observer',
    applicationName: 'observer',
    callTimeoutMs: 5_000,
    unreachable: 'region-unreachable',
  })
}

async function loginWith(scene: CredentialsScene, role: string, password: string, options = ''): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: `postgres://${role}@127.0.0.1:${scene.fixture.server.port}/app${options}` })
  client.password = password
  client.on('error', () => undefined)
  await client.connect()
  onTestFinished(async () => await client.end().catch(() => undefined))
  return client
}

/** Passes the question whether it may log in, sleeps four seconds in no list, then writes. */
async function lateWriter(scene: CredentialsScene): Promise<string> {
  try {
    const client = await loginWith(scene, 'app_writer', OLD, `?options=${encodeURIComponent('-c post_auth_delay=4')}`)
    await client.query(`insert into public.hammered (by_client) values ('late')`)
    return 'wrote'
  } catch (error) {
    return String(error)
  }
}

/** Passes on the first two messages of a client, the start and the beginning of the password exchange, and holds the third back. */
async function startPausingGate(target: number) {
  const open = new Set<Socket>()
  const held: (() => void)[] = []
  let resumed = false
  const server = createServer(client => {
    const upstream = connect(target, '127.0.0.1')
    let messages = 0
    for (const socket of [client, upstream]) {
      open.add(socket)
      socket.on('error', () => undefined)
    }
    client.on('data', data => {
      messages += 1
      if (messages < 3 || resumed) upstream.write(data)
      else held.push(() => upstream.write(data))
    })
    upstream.on('data', data => client.write(data))
    client.on('close', () => upstream.destroy())
    upstream.on('close', () => client.destroy())
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  return {
    port: typeof address === 'object' && address !== null ? address.port : 0,
    paused: () => held.length > 0,
    resume: () => {
      resumed = true
      for (const pass of held) pass()
    },
    stop: async () => {
      for (const socket of open) socket.destroy()
      await new Promise<void>(resolve => server.close(() => resolve()))
    },
  }
}
