import { HomeregionError } from '../../../domain/errors.ts'
import type { Connection } from '../../postgres/connection.ts'
import { identifier } from '../quoting.ts'
import { PASSWORD_DIGEST } from './credentials-record.ts'

export type RoleFacts = {
  readonly role: string
  readonly superuser: boolean
  readonly replication: boolean
  readonly canLogin: boolean
  /** Its validity is over: no password lets it in. */
  readonly expired: boolean
  /** PostgreSQL 16 and later: this login has the ADMIN OPTION on it. */
  readonly administered: boolean
}

export type FencerFacts = {
  readonly login: string
  readonly superuser: boolean
  readonly createRole: boolean
  readonly version: number
  readonly mayEndSessions: boolean
  readonly seesSessions: boolean
}

export type LoginFacts = { readonly fencer: FencerFacts; readonly roles: readonly RoleFacts[] }

const FENCER = `select r.rolname::text as login, r.rolsuper as superuser, r.rolcreaterole as create_role,
  current_setting('server_version_num')::int as version,
  pg_has_role(r.oid, 'pg_signal_backend'::name, 'usage') as may_end, pg_has_role(r.oid, 'pg_read_all_stats'::name, 'usage') as sees
from pg_catalog.pg_roles r where r.rolname = current_user`

const ROLES = `select r.rolname::text as role, r.rolsuper as superuser, r.rolreplication as replication, r.rolcanlogin as can_login,
  coalesce(r.rolvaliduntil <= now(), false) as expired, pg_has_role(current_user, r.oid, 'member with admin option') as administered
from pg_catalog.pg_roles r where r.rolname = any ($1::name[]) order by array_position($1::name[], r.rolname)`

export async function loginFacts(connection: Connection, roles: readonly string[]): Promise<LoginFacts> {
  const [fencers, found] = await Promise.all([connection.query('read', FENCER), connection.query('read', ROLES, [roles])])
  const fencer = fencers.rows[0] ?? {}
  return {
    fencer: {
      login: String(fencer.login),
      superuser: fencer.superuser === true,
      createRole: fencer.create_role === true,
      version: Number(fencer.version),
      mayEndSessions: fencer.may_end === true,
      seesSessions: fencer.sees === true,
    },
    roles: found.rows.map(r => ({
      role: String(r.role),
      superuser: r.superuser === true,
      replication: r.replication === true,
      canLogin: r.can_login === true,
      expired: r.expired === true,
      administered: r.administered === true,
    })),
  }
}

/** Whether the role's password is another than the fence found. Superusers may ask. */
export async function passwordChanged(connection: Connection, role: string, digest: string): Promise<boolean> {
  const { rows } = await connection.query('read', `select ${PASSWORD_DIGEST} as digest from pg_catalog.pg_authid r where r.rolname = $1`, [
    role,
  ])
  return rows[0]?.digest !== digest
}

/** Everything that would stop the fence half-way, found before its first change. */
export function refuseWhatCannotBeFenced(region: string, facts: LoginFacts, roles: readonly string[], own: readonly string[]): void {
  const unknown = roles.filter(role => !facts.roles.some(f => f.role === role))
  const ours = roles.filter(role => own.includes(role))
  if (unknown.length > 0) throw invalid(region, `there is no role ${unknown.join(', ')}`)
  if (ours.length > 0) throw invalid(region, `${ours.join(', ')} is this tool's own login there: fenced, nobody could lift the fence`)
  const superusers = facts.roles.filter(f => f.superuser).map(f => f.role)
  if (superusers.length > 0)
    throw refused(
      region,
      `${superusers.join(', ')} is a superuser, whom no fence of its login holds back: it can give itself the login again`,
      superusers.map(role => `ALTER ROLE ${identifier(role)} NOSUPERUSER`),
    )
  refuseWhatMayNotBeDone(region, facts)
}

/** @throws `privilege-missing` with the statements that close it */
export function refuseWhatMayNotBeDone(region: string, { fencer, roles }: LoginFacts): void {
  if (fencer.superuser) return
  const login = identifier(fencer.login)
  // CREATEROLE alone is enough before 16, but never for a role that replicates.
  const unreachable = roles.filter(r => (fencer.version < 160_000 ? r.superuser || r.replication : r.superuser || !r.administered))
  const grant = (role: string) =>
    fencer.version < 160_000
      ? `ALTER ROLE ${login} SUPERUSER`
      : `GRANT ${identifier(role)} TO ${login} WITH ADMIN OPTION, INHERIT FALSE, SET FALSE`
  const problems = [
    ...(fencer.createRole ? [] : [{ why: 'has no CREATEROLE', closes: `ALTER ROLE ${login} CREATEROLE` }]),
    ...unreachable.map(r => ({ why: `may not alter ${r.role}`, closes: grant(r.role) })),
    ...(fencer.mayEndSessions ? [] : [{ why: 'may not end the sessions of others', closes: `GRANT pg_signal_backend TO ${login}` }]),
    ...(fencer.seesSessions ? [] : [{ why: 'cannot tell whose sessions are starting', closes: `GRANT pg_read_all_stats TO ${login}` }]),
  ]
  if (problems.length > 0)
    throw refused(
      region,
      `${fencer.login} ${problems.map(p => p.why).join(', ')}`,
      problems.map(p => p.closes),
    )
}

function refused(region: string, why: string, closes: readonly string[]): HomeregionError {
  return new HomeregionError(
    'privilege-missing',
    { fact: `${region} database: ${why}`, state: 'Nothing was changed.', next: closes.map(sql => `${sql};`).join(' ') },
    { fields: { region, closes } },
  )
}

function invalid(region: string, why: string): HomeregionError {
  return new HomeregionError(
    'config-invalid',
    { fact: `${region} database: ${why}`, state: 'Nothing was changed.', next: 'homeregion config show' },
    { fields: { region } },
  )
}
