import type pg from 'pg'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { startSessionPooler } from '../rig/session-pooler.ts'
import { startCopy } from './copy-in-progress.ts'
import { type Attempt, type MatrixScene, PASSWORD, PUBLISHER } from './fence-matrix-scene.ts'

/** A writer that is ready before the fence goes up. */
type Held = {
  /** What a report may name: a role, a pid, a gid, a subscription. */
  readonly names: readonly string[]
  /** Writes, or ends what was begun, once the fence stands. SQLSTATE or `ended` of what was refused; null: it went through. */
  finish(): Promise<string | null>
  close(): Promise<void>
}

export type Writer = {
  readonly name: string
  /** Where the key is at home that it writes; a copy of a foreign key is what replication is for. */
  readonly home: 'region-a' | 'region-b'
  /** Replication's own login, which may write copies of what another region wrote and nothing else: no fence is to stop that. */
  readonly copies?: boolean
  /** As superuser, before what is to be the same afterwards is read. */
  readonly setup: (scene: MatrixScene) => readonly string[]
  readonly teardown: readonly string[]
  readonly hold: (scene: MatrixScene, attempt: Attempt) => Promise<Held>
}

const ROW = `insert into account (tenant_id, account_id, version, billing_address) values ($1, $2, 1, 'x')`
const OWNER = 'app_owner'

/** A new login with what it needs to reach the tables, and nothing to write them with. */
function loginRole(role: string, option = ''): string {
  return `create role ${role} login password '${PASSWORD}' ${option}; grant connect on database app to ${role}; grant usage on schema public to ${role}`
}

function dropped(role: string): string {
  return `drop owned by ${role}; drop role ${role}`
}

/** SQLSTATE of what failed; `ended` when the session did. */
async function answer(work: Promise<unknown>): Promise<string | null> {
  try {
    await work
    return null
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : null
    if (code === '57P01' || (code === null && error instanceof Error && /terminat|closed|ended|not queryable/i.test(error.message)))
      return 'ended'
    return code ?? String(error)
  }
}

async function pidOf(client: pg.Client): Promise<string> {
  return String((await client.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]?.pid)
}

type Session = {
  readonly name: string
  readonly role?: string
  readonly setup?: (scene: MatrixScene) => readonly string[]
  readonly teardown?: readonly string[]
  /** What a report may name besides the role. */
  readonly names?: readonly string[]
  readonly home?: Writer['home']
  readonly copies?: boolean
  /** Before the fence. */
  readonly before?: (client: pg.Client, attempt: Attempt, scene: MatrixScene) => Promise<unknown>
  /** Once it stands. */
  readonly after?: (client: pg.Client, attempt: Attempt, scene: MatrixScene) => Promise<unknown>
}

const insert = async (client: pg.Client, { key, id }: Attempt) => await client.query(ROW, [key, id])

/** A writer with one session that is open before the fence. */
function session(of: Session): Writer {
  const role = of.role ?? 'app_writer'
  return {
    name: of.name,
    home: of.home ?? 'region-a',
    copies: of.copies === true,
    setup: of.setup ?? (() => []),
    teardown: of.teardown ?? [],
    hold: async (scene, attempt) => {
      const client = await scene.login(role)
      const pid = await pidOf(client)
      await of.before?.(client, attempt, scene)
      return {
        names: [role, pid, attempt.id, ...(of.names ?? [])],
        finish: async () => await answer((of.after ?? insert)(client, attempt, scene)),
        close: async () => await client.end().catch(() => undefined),
      }
    },
  }
}

const begun = async (client: pg.Client, attempt: Attempt) => {
  await client.query('begin')
  await insert(client, attempt)
}

/** Its own session, or one that the server itself opens. */
const DBLINK = (scene: MatrixScene) => `host=127.0.0.1 port=${scene.port} dbname=app user=app_writer password=${scene.secret()}`

/** One transaction that takes the guard off, writes, and puts it on again. */
const past = async (client: pg.Client, attempt: Attempt) => {
  await client.query('begin')
  await client.query('alter table account disable trigger zzz_homeregion_insert')
  await insert(client, attempt)
  await client.query('alter table account enable always trigger zzz_homeregion_insert')
  await client.query('commit')
}

const definer = (owner: string, setup: readonly string[], teardown: readonly string[]) =>
  session({
    name: `caller of a SECURITY DEFINER function of ${owner === OWNER ? 'the owner' : 'a granted role'}`,
    role: 'app_caller',
    setup: () => [
      loginRole('app_caller'),
      ...setup,
      `create function write_as(k text, i text) returns void language sql security definer set search_path = pg_catalog, pg_temp
         as $$ insert into public.account (tenant_id, account_id, version, billing_address) values (k, i, 1, 'x') $$`,
      `alter function write_as(text, text) owner to ${owner}`,
      'revoke execute on function write_as(text, text) from public',
      'grant execute on function write_as(text, text) to app_caller',
    ],
    teardown: ['drop function write_as(text, text)', dropped('app_caller'), ...teardown],
    after: async (client, { key, id }) => await client.query('select write_as($1, $2)', [key, id]),
  })

const owner = (name: string, after: Session['after']) =>
  session({
    name,
    role: OWNER,
    setup: () => [`alter role ${OWNER} login password '${PASSWORD}'; grant connect on database app to ${OWNER}`],
    teardown: [`alter role ${OWNER} nologin password null; revoke connect on database app from ${OWNER}`],
    ...(after === undefined ? {} : { after }),
  })

const subscription = (name: string, home: Writer['home']): Writer => ({
  name,
  home,
  copies: home !== 'region-a',
  setup: () => [],
  teardown: [],
  hold: async (scene, { key, id }) => {
    await scene.publisher.query(`select pg_create_logical_replication_slot('matrix', 'pgoutput')`)
    const { password } = scene.publisher
    const source = `host=127.0.0.1 port=${scene.port} dbname=${PUBLISHER} user=postgres password=${password ?? ''}`
    await scene.admin.query(
      `create subscription matrix connection '${source}' publication p with (create_slot = false, slot_name = 'matrix', copy_data = false)`,
    )
    // The worker's refusals by the boundary are counted by it, whatever else makes a worker fail.
    const refused = async () => (await scene.db.rejections()).apply
    const before = await refused()
    return {
      names: ['matrix'],
      finish: async () => {
        await scene.publisher.query(ROW, [key, id])
        const decided = await waitUntil(async () => (await scene.landed({ key, id })) || (await refused()) > before, 20_000)
        if (!decided) return 'nothing was applied'
        return (await refused()) > before ? 'HR001' : null
      },
      close: async () => {
        await scene.admin.query('alter subscription matrix disable')
        await scene.admin.query('alter subscription matrix set (slot_name = none)')
        await scene.admin.query('drop subscription matrix')
        await waitUntil(
          async () =>
            (await scene.publisher.query(`select pg_drop_replication_slot('matrix') from pg_replication_slots where not active`))
              .rowCount === 1,
          20_000,
        )
      },
    }
  },
})

/** Every kind of writer, in the order of the table. */
export const WRITERS: readonly Writer[] = [
  session({ name: 'application role, idle session' }),
  {
    name: 'application role, new login',
    home: 'region-a',
    setup: () => [],
    teardown: [],
    hold: async (scene, attempt) => {
      const password = scene.secret()
      let client: pg.Client | null = null
      return {
        names: ['app_writer'],
        finish: async () =>
          await answer(
            scene.login('app_writer', { password }).then(async opened => {
              client = opened
              await insert(opened, attempt)
            }),
          ),
        close: async () => await client?.end().catch(() => undefined),
      }
    },
  },
  session({ name: 'open transaction that has written', before: begun, after: async client => await client.query('commit') }),
  session({
    name: 'open transaction that has not written',
    before: async client => {
      await client.query('begin')
      await client.query('select count(*) from account')
    },
    after: async (client, attempt) => {
      await insert(client, attempt)
      await client.query('commit')
    },
  }),
  session({
    name: 'REPEATABLE READ with a snapshot from before',
    before: async client => {
      await client.query('begin isolation level repeatable read')
      await client.query('select count(*) from account')
    },
    after: async (client, attempt) => {
      await insert(client, attempt)
      await client.query('commit')
    },
  }),
  session({
    name: 'prepared transaction, committed afterwards',
    before: async (client, attempt) => {
      await begun(client, attempt)
      await client.query(`prepare transaction '${attempt.id}'`)
    },
    after: async (_client, { id }, scene) => await scene.admin.query(`commit prepared '${id}'`),
  }),
  {
    name: 'COPY in progress',
    home: 'region-a',
    setup: () => [],
    teardown: [],
    hold: async (scene, { key, id }) => {
      const client = await scene.login('app_writer')
      const pid = await pidOf(client)
      const copy = await startCopy(client, 'copy account (tenant_id, account_id, version, billing_address) from stdin')
      copy.send(`${key}\t${id}\t1\tx`)
      // It has met the guard, and holds the table.
      await waitUntil(
        async () =>
          (await scene.admin.query('select 1 from pg_stat_progress_copy where pid = $1 and tuples_processed > 0', [pid])).rowCount === 1,
        10_000,
      )
      return {
        names: [pid],
        finish: async () => {
          copy.send(`${key}\t${id}-2\t1\tx`)
          const error = await copy.end()
          return error === null ? null : await answer(Promise.reject(error))
        },
        close: async () => await client.end().catch(() => undefined),
      }
    },
  },
  {
    name: 'pooled session',
    home: 'region-a',
    setup: () => [],
    teardown: [],
    hold: async (scene, attempt) => {
      const pooler = await startSessionPooler({ target: { port: scene.port }, mode: 'session' })
      const client = await scene.login('app_writer', { port: pooler.port })
      const pid = await pidOf(client)
      return {
        names: ['app_writer', pid],
        finish: async () => await answer(insert(client, attempt)),
        close: async () => {
          await client.end().catch(() => undefined)
          await pooler.stop()
        },
      }
    },
  },
  {
    name: 'pooled session that the pooler opens as another role',
    home: 'region-a',
    setup: () => [loginRole('app_pool'), 'grant select, insert on account to app_pool'],
    teardown: [dropped('app_pool')],
    hold: async (scene, attempt) => {
      const hideAs = { user: 'app_pool', password: PASSWORD }
      const pooler = await startSessionPooler({ target: { port: scene.port }, mode: 'session', hideAs })
      const client = await scene.login('app_writer', { port: pooler.port })
      return {
        names: ['app_pool'],
        finish: async () => await answer(insert(client, attempt)),
        close: async () => {
          await client.end().catch(() => undefined)
          await pooler.stop()
        },
      }
    },
  },
  session({
    name: 'second role, by inherited membership',
    role: 'app_member',
    setup: () => [loginRole('app_member', 'in role app_writer')],
    teardown: [dropped('app_member')],
  }),
  session({
    name: 'second role, by SET ROLE',
    role: 'app_switch',
    setup: () => [loginRole('app_switch', 'noinherit in role app_writer')],
    teardown: [dropped('app_switch')],
    before: async client => await client.query('set role app_writer'),
  }),
  session({
    name: 'role with a grant on columns',
    role: 'app_column',
    setup: () => [loginRole('app_column'), 'grant insert (tenant_id, account_id, version, billing_address) on account to app_column'],
    teardown: [dropped('app_column')],
  }),
  session({
    name: 'role that writes through a view of the owner',
    role: 'app_viewer',
    setup: () => [
      loginRole('app_viewer'),
      'create view account_view as select tenant_id, account_id, version, billing_address from account',
      `alter view account_view owner to ${OWNER}`,
      'grant insert on account_view to app_viewer',
    ],
    teardown: ['drop view account_view', dropped('app_viewer')],
    after: async (client, { key, id }) =>
      await client.query(`insert into account_view (tenant_id, account_id, version, billing_address) values ($1, $2, 1, 'x')`, [key, id]),
  }),
  definer(OWNER, [], []),
  definer(
    'app_group',
    ['create role app_group nologin', 'grant usage on schema public to app_group', 'grant insert on account to app_group'],
    [dropped('app_group')],
  ),
  session({
    name: 'dblink, a session kept open',
    role: 'app_caller',
    names: ['dblink'],
    setup: () => [loginRole('app_caller'), 'create extension dblink schema public'],
    teardown: ['drop extension dblink', dropped('app_caller')],
    before: async (client, _attempt, scene) => await client.query('select dblink_connect($1, $2)', ['kept', DBLINK(scene)]),
    after: async (client, { key, id }) =>
      await client.query('select dblink_exec($1, $2)', [
        'kept',
        `insert into account (tenant_id, account_id, version, billing_address) values ('${key}', '${id}', 1, 'x')`,
      ]),
  }),
  session({
    name: 'postgres_fdw, a new session',
    role: 'app_caller',
    names: ['postgres_fdw', 'back_again'],
    setup: scene => [
      loginRole('app_caller'),
      'create extension postgres_fdw schema public',
      `create server back_again foreign data wrapper postgres_fdw options (host '127.0.0.1', port '${scene.port}', dbname 'app')`,
      `create user mapping for app_caller server back_again options (user 'app_writer', password '${scene.secret()}')`,
      `create schema far; grant usage on schema far to app_caller`,
      `create foreign table far.account (tenant_id text, account_id text, version bigint, billing_address text)
         server back_again options (schema_name 'public', table_name 'account')`,
      'grant insert on far.account to app_caller',
    ],
    teardown: ['drop schema far cascade', 'drop extension postgres_fdw cascade', dropped('app_caller')],
    after: async (client, { key, id }) =>
      await client.query(`insert into far.account (tenant_id, account_id, version, billing_address) values ($1, $2, 1, 'x')`, [key, id]),
  }),
  session({ name: 'consumer of copies (homeregion_apply), key at home here', role: 'app_inbox', names: ['copies'] }),
  session({
    name: 'consumer of copies (homeregion_apply), key at home elsewhere',
    role: 'app_inbox',
    names: ['copies'],
    home: 'region-b',
    copies: true,
  }),
  subscription('logical subscription, key at home here', 'region-a'),
  subscription('logical subscription, key at home elsewhere', 'region-b'),
  owner('table owner', undefined),
  owner('table owner who takes the guard off', past),
  session({ name: 'superuser', role: 'postgres' }),
  session({ name: 'superuser who takes the guard off', role: 'postgres', after: past }),
]
