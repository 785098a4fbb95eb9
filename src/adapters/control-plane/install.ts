import pg from 'pg'
import type { Config } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { interlockPolicy } from '../../domain/planning.ts'
import { type Connection, createConnection, type Secrets } from '../postgres/connection.ts'
import { grants, loginUser } from './grants.ts'
import { allow } from './long-change.ts'
import { sqlstate, translate } from './refusals.ts'
import { CONTROL_PLANE_VERSION, migrations, type RenderedStatement } from './schema.ts'

export type ControlPlanePlan = { readonly statements: readonly RenderedStatement[]; readonly version: number }

export type ControlPlaneInstallation = ControlPlanePlan & {
  /** 0 when nothing was installed. */
  readonly fromVersion: number
  readonly applied: boolean
  /** The settings were as configured: at the same version there is nothing to do. */
  readonly stands: boolean
}

// Fixed and arbitrary: two `init` at once take turns. Stores without advisory locks still have the primary key of schema_version.
const INSTALL_LOCK = 1_213_354_067

// A migration reads whatever was recorded, and checks it against the constraints it adds: millions of changes take minutes.
const MIGRATION_MS = 30 * 60_000

/** Everything `init` would run on a control plane at version `installed`, in order. */
export function renderControlPlane(config: Config, installed = 0): ControlPlanePlan {
  return { statements: [...migrations(installed), ...settings(config), ...grants(config)], version: CONTROL_PLANE_VERSION }
}

/**
 * Installs or migrates in one transaction; running it again changes nothing but the settings and grants it repeats.
 * @throws `newer-schema`, `wrong-database`, `privilege-missing`, `control-plane-unreachable`, `outcome-unknown`
 */
export async function installControlPlane(options: {
  readonly config: Config
  readonly secrets: Secrets
  readonly dryRun: boolean
}): Promise<ControlPlaneInstallation> {
  const { config, secrets, dryRun } = options
  const connection = createConnection({
    login: config.controlPlane.admin ?? config.controlPlane.operator,
    secrets,
    name: 'control plane',
    applicationName: 'homeregion init',
    callTimeoutMs: config.policy.callTimeoutMs,
    unreachable: 'control-plane-unreachable',
  })
  try {
    return await install(connection, config, dryRun)
  } catch (error) {
    throw roleMissing(error, config) ?? translate(error)
  } finally {
    await connection.close()
  }
}

async function install(connection: Connection, config: Config, dryRun: boolean): Promise<ControlPlaneInstallation> {
  const fromVersion = await installedVersion(connection, config)
  const plan = renderControlPlane(config, fromVersion)
  const stands = fromVersion === plan.version && (await settingsStand(connection, config))
  if (dryRun) return { ...plan, fromVersion, applied: false, stands }
  try {
    // If the process dies before the commit arrives nothing was installed; after it, everything was.
    const { callTimeoutMs } = config.policy
    const migrates = fromVersion > 0 && fromVersion < plan.version
    const timeoutMs = migrates ? MIGRATION_MS : callTimeoutMs
    const statements = [
      ...allow(timeoutMs, callTimeoutMs),
      { sql: 'select pg_advisory_xact_lock($1)', parameters: [INSTALL_LOCK] },
      ...plan.statements.map(s => ({ sql: s.sql })),
    ]
    await connection.transaction('write', statements, timeoutMs)
  } catch (error) {
    // Another init was faster: look again, and do what is left.
    const taken = ['42P06', '42P07', '23505'].includes(sqlstate(error) ?? '')
    if (taken && (await installedVersion(connection, config)) > fromVersion) return await install(connection, config, dryRun)
    throw error
  }
  return { ...plan, fromVersion, applied: true, stands }
}

/** Who approves and what an activation needs follow the configuration, also where the schema is the newest already. */
async function settingsStand(connection: Connection, config: Config): Promise<boolean> {
  const { approvals, needs } = settingValues(config)
  const found = await connection.query(
    'read',
    `select exists (select 1 from homeregion_control.approval_policy where in_force and (approvers, needed, above_keys) = (${approvals}))
    and exists (select 1 from homeregion_control.interlock_policy
      where in_force and (needs_barrier, needs_versions, needs_idempotency) = (${needs}))
    and not exists (select 1 from homeregion_control.region_lease where ${unstopped(config)}) as stand`,
  )
  return found.rows[0]?.stand === true
}

/** Leases of regions whose boundary is installed without an end to its writes from now on. */
function unstopped(config: Config): string {
  const stopping = config.regions.filter(r => r.lease?.onAgentOutage === 'stop').map(r => r.name)
  return `stops and not ${pg.escapeLiteral(JSON.stringify(stopping))}::jsonb ? region`
}

function settingValues(config: Config): { readonly approvals: string; readonly needs: string } {
  const { required } = interlockPolicy(config)
  const { approvers, needed, aboveKeys } = config.policy.approvals
  return {
    approvals: `${pg.escapeLiteral(JSON.stringify(approvers))}::jsonb, ${Number(needed)}, ${Number(aboveKeys)}`,
    needs: (['barrier-applied', 'versions-equal', 'idempotency-carried'] as const).map(check => required.includes(check)).join(', '),
  }
}

async function installedVersion(connection: Connection, config: Config): Promise<number> {
  const present = await connection.query('read', `select to_regclass('homeregion_control.schema_version') is not null as present`)
  if (present.rows[0]?.present !== true) return 0
  const [versions, owners] = await Promise.all([
    connection.query('read', 'select coalesce(max(version), 0) as version from homeregion_control.schema_version'),
    connection.query('read', 'select service from homeregion_control.installation'),
  ])
  const version = Number(versions.rows[0]?.version)
  if (version > CONTROL_PLANE_VERSION) throw newerSchema(version)
  const service = owners.rows[0]?.service
  if (typeof service === 'string' && service !== config.service) throw foreign(service, config.service)
  return version
}

export function newerSchema(version: number): HomeregionError {
  return new HomeregionError(
    'newer-schema',
    {
      fact: `the control plane is at version ${version}, this tool knows ${CONTROL_PLANE_VERSION}`,
      state: 'Nothing was changed.',
      next: 'install the newer homeregion, then: homeregion doctor',
    },
    { fields: { version, known: CONTROL_PLANE_VERSION } },
  )
}

export function olderSchema(version: number): HomeregionError {
  return new HomeregionError(
    'not-initialised',
    {
      fact: `the control plane is at version ${version}, this tool needs ${CONTROL_PLANE_VERSION}`,
      state: 'Nothing was changed.',
      next: 'homeregion init',
    },
    { fields: { version, known: CONTROL_PLANE_VERSION } },
  )
}

function foreign(installed: string, configured: string): HomeregionError {
  return new HomeregionError(
    'wrong-database',
    {
      fact: `this database is the control plane of service ${JSON.stringify(installed)}, the configuration says ${JSON.stringify(configured)}`,
      state: 'Nothing was changed.',
      next: 'homeregion config show',
    },
    { fields: { installed, configured } },
  )
}

function roleMissing(error: unknown, config: Config): HomeregionError | null {
  if (sqlstate(error) !== '42704') return null
  const user = loginUser(config.controlPlane.operator.url) ?? ''
  return new HomeregionError(
    'privilege-missing',
    {
      fact: `the control plane has no role ${JSON.stringify(user)}, the user of its operator login`,
      state: 'Nothing was changed.',
      next: `create role ${pg.escapeIdentifier(user)} login`,
    },
    { cause: error, fields: { role: user } },
  )
}

/** Whose control plane it is, and which proofs an activation needs: repeated at each init, so that they follow the configuration. */
function settings(config: Config): readonly RenderedStatement[] {
  const { approvals, needs } = settingValues(config)
  return [
    {
      sql: `update homeregion_control.region_lease set stops = false where ${unstopped(config)}`,
      why: "A region that is installed without an end to its writes proves nothing by its lease's being over.",
    },
    {
      sql: `insert into homeregion_control.installation (service, topology)
values (${pg.escapeLiteral(config.service)}, ${pg.escapeLiteral(config.topology)})
on conflict (id) do update set topology = excluded.topology`,
      why: 'Whose control plane this is.',
    },
    {
      sql: `update homeregion_control.interlock_policy set in_force = false
where in_force and (needs_barrier, needs_versions, needs_idempotency) <> (${needs})`,
      why: 'A policy that the configuration has left behind is retired; what was activated under it stays recorded.',
    },
    {
      sql: `insert into homeregion_control.interlock_policy (id, needs_barrier, needs_versions, needs_idempotency, in_force)
select coalesce((select max(id) from homeregion_control.interlock_policy), 0) + 1, ${needs}, true
where not exists (select 1 from homeregion_control.interlock_policy where in_force)`,
      why: 'Which proofs an activation needs beside the fence: barrier, versions, idempotency records.',
    },
    {
      sql: `update homeregion_control.approval_policy set in_force = false
where in_force and (approvers, needed, above_keys) <> (${approvals})`,
      why: 'The same of who approves a forced failover.',
    },
    {
      sql: `insert into homeregion_control.approval_policy (id, approvers, needed, above_keys, in_force)
select coalesce((select max(id) from homeregion_control.approval_policy), 0) + 1, ${approvals}, true
where not exists (select 1 from homeregion_control.approval_policy where in_force)`,
      why: 'Who approves a forced failover, how many it takes, and above how many keys.',
    },
  ]
}
