import type { FenceCause, FenceState } from '../../../domain/fence.ts'
import type { FenceWish } from '../../../domain/fence-wish.ts'
import type { Connection, Row, Statement } from '../../postgres/connection.ts'
import { identifier, literal } from '../quoting.ts'
import { askFence } from './fence-ask.ts'

/** `delivering`: the sink may hold a secret that was never in force. `rotated`: the secret the sink took is in force. */
export type Phase = 'closed' | 'delivering' | 'rotated'

/** One role as the fence found it, and how far it has come with it. */
export type LoginItem = {
  /** Its name in the record, which stays. */
  readonly item: string
  /** What the role was called when it was fenced. */
  readonly fenced: string
  /** What it is called now: the same role, by its number. */
  readonly role: string
  /** False: no role has its number any more. One that has its name then is another, and none of ours. */
  readonly there: boolean
  readonly canLogin: boolean
  /**
   * SHA-256 of what the catalogue held for its password, null where there was none or this login may not see it. Never more than that: a password
   * that was replaced is not brought back, and one that was not never left the catalogue.
   */
  readonly passwordDigest: string | null
  readonly phase: Phase
}

export type StandingFence = {
  readonly state: Exclude<FenceState, 'lifted' | 'unknown'>
  readonly since: string
} & FenceWish

export type CredentialsRecord = {
  read(): Promise<{ readonly fence: StandingFence | null; readonly items: readonly LoginItem[] }>
  /** Every role that has no item yet gets one, and none may log in any more: one commit. */
  close(roles: readonly string[], cause: FenceCause, seesPasswords: boolean): Promise<void>
  /** From here on the sink may hold a secret that is not in force. */
  delivering(item: string, delivery: string): Promise<void>
  /** The password changes, and the record with it. Refused when another delivery was begun since. */
  rotate(item: LoginItem, delivery: string, verifier: string): Promise<void>
  applied(): Promise<void>
  /** Refused when it stands for another wish by now. */
  lifting(asked: number): Promise<void>
  /** The role gets back its LOGIN if it had it, and its item goes away. */
  restore(item: LoginItem): Promise<void>
  /** The role is gone: nothing can be brought back. */
  drop(item: LoginItem): Promise<void>
  lifted(): Promise<void>
}

/** The record of one fence stands in the region's database: whatever dies, the roles and what is known about them never part. */
export function createCredentialsRecord(connection: Connection, region: string, name: string): CredentialsRecord {
  const commit = async (statements: readonly Statement[]) => {
    await connection.transaction('write', [DURABLE, ...statements])
  }
  const mine = [region, name]
  const setState = (state: StandingFence['state']): Statement => ({
    sql: 'update homeregion.fence set state = $3 where region = $1 and name = $2',
    parameters: [...mine, state],
  })
  const forget = ({ item }: LoginItem): Statement => ({
    sql: 'delete from homeregion.fence_item where region = $1 and name = $2 and item = $3',
    parameters: [...mine, item],
  })
  return {
    read: async () => {
      const [fences, items] = await Promise.all([
        connection.query('read', 'select * from homeregion.fence where region = $1 and name = $2', mine),
        connection.query('read', READ_ITEMS, mine),
      ])
      const [row] = fences.rows
      return { fence: row === undefined ? null : standing(row), items: items.rows.map(loginItem) }
    },
    close: async (roles, cause, seesPasswords) =>
      await commit([
        { sql: KEEP_FENCE, parameters: [...mine, 'credentials', cause.reason, cause.by, cause.runId] },
        ...roles.flatMap(role => [
          { sql: seesPasswords ? KEEP_LOGIN_AND_PASSWORD : KEEP_LOGIN, parameters: [...mine, role] },
          { sql: alterRole(role, 'NOLOGIN') },
        ]),
      ]),
    delivering: async (item, delivery) =>
      await commit([advance({ mine, item, from: ['closed', 'delivering'], set: { phase: 'delivering', delivery } })]),
    rotate: async ({ item, role }, delivery, verifier) =>
      await commit([
        advance({ mine, item, from: ['delivering'], delivery, set: { phase: 'rotated' } }),
        { sql: alterRole(role, `PASSWORD ${literal(verifier)}`) },
      ]),
    applied: async () => await commit([setState('applied')]),
    lifting: async asked =>
      await commit([
        {
          sql: `with moved as (update homeregion.fence set state = 'lifting' where region = $1 and name = $2 and asked = $3 returning 1)
                select 1 / count(*) from moved`,
          parameters: [...mine, asked],
        },
      ]),
    restore: async item => await commit([...(item.canLogin ? [{ sql: alterRole(item.role, 'LOGIN') }] : []), forget(item)]),
    drop: async item => await commit([forget(item)]),
    lifted: async () =>
      await commit([
        { sql: 'delete from homeregion.fence where region = $1 and name = $2 and state = $3', parameters: [...mine, 'lifting'] },
      ]),
  }
}

export function alterRole(role: string, change: string): string {
  return `ALTER ROLE ${identifier(role)} ${change}`
}

/** A fence that a crash takes back is none; what waits for standbys as well keeps doing so. */
const DURABLE: Statement = {
  sql: `select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') in ('off', 'local')`,
}

const KEEP_FENCE = askFence(`state = 'applying', since = case f.state when 'lifting' then excluded.since else f.since end, `)

// A role is its number: it may be called otherwise now, and another may have its name.
const READ_ITEMS = `select i.item, i.former, r.rolname as role from homeregion.fence_item i
left join pg_catalog.pg_roles r on case when i.former ? 'oid' then r.oid = (i.former ->> 'oid')::oid else r.rolname = i.item end
where i.region = $1 and i.name = $2 order by i.item`

const keepLogin = (digest: string, catalogue: string) => `insert into homeregion.fence_item (region, name, item, former)
select $1, $2, case when taken.item is null then r.rolname else format('%s (%s)', r.rolname, r.oid) end,
       jsonb_build_object('oid', r.oid::text, 'fenced', r.rolname, 'canLogin', r.rolcanlogin, 'passwordDigest', ${digest}, 'phase', 'closed')
from ${catalogue} r left join homeregion.fence_item taken on taken.region = $1 and taken.name = $2 and taken.item = r.rolname
where r.rolname = $3
  and not exists (select from homeregion.fence_item k where k.region = $1 and k.name = $2 and coalesce(k.former ->> 'oid', r.oid::text) = r.oid::text and (k.former ? 'oid' or k.item = r.rolname))
on conflict do nothing`
const KEEP_LOGIN = keepLogin('null', 'pg_catalog.pg_roles')
export const PASSWORD_DIGEST = `encode(sha256(convert_to(r.rolpassword, 'UTF8')), 'hex')`
const KEEP_LOGIN_AND_PASSWORD = keepLogin(PASSWORD_DIGEST, 'pg_catalog.pg_authid')

type Advance = {
  readonly mine: readonly string[]
  readonly item: string
  readonly from: readonly Phase[]
  readonly delivery?: string
  readonly set: Record<string, string>
}

/** Raises (division by zero) when the item is not where we left it: somebody else went on with this fence. */
function advance(step: Advance): Statement {
  return {
    sql: `with moved as (
      update homeregion.fence_item set former = former || $5::jsonb
      where region = $1 and name = $2 and item = $3 and former ->> 'phase' = any ($4::text[]) and ($6::text is null or former ->> 'delivery' = $6)
      returning 1)
    select 1 / count(*) from moved`,
    parameters: [...step.mine, step.item, step.from, JSON.stringify(step.set), step.delivery ?? null],
  }
}
/** SQLSTATE of an item that is not where we left it. */
export const OVERTAKEN = '22012'

function standing(row: Row): StandingFence {
  return {
    state: row.state as StandingFence['state'],
    since: row.since instanceof Date ? row.since.toISOString() : String(row.since),
    asked: Number(row.asked),
    cause: { reason: String(row.reason), by: String(row.applied_by), runId: typeof row.run_id === 'string' ? row.run_id : null },
  }
}

function loginItem(row: Row): LoginItem {
  const former = row.former as { fenced?: string; canLogin?: boolean; passwordDigest?: string | null; phase?: Phase }
  const fenced = former.fenced ?? String(row.item)
  return {
    item: String(row.item),
    fenced,
    role: typeof row.role === 'string' ? row.role : fenced,
    there: typeof row.role === 'string',
    canLogin: former.canLogin === true,
    passwordDigest: former.passwordDigest ?? null,
    phase: former.phase ?? 'closed',
  }
}
