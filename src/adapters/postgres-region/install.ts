import type { Config, RegionConfig } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { type Connection, createConnection, type Secrets } from '../postgres/connection.ts'
import { boundaryError, sqlstate } from './boundary-error.ts'
import { BOUNDARY_VERSION, type Boundary, renderBoundary } from './boundary-sql.ts'
import { guardProblems } from './region-facts.ts'
import { ALL_REGIONS, boundaryRegion } from './topology.ts'

export type BoundaryInstallation = {
  /** What was run, or would be: each statement under its reason. Empty when the boundary stands as configured. */
  readonly shown: readonly string[]
  readonly applied: boolean
}

// Two `init` at once take turns.
const INSTALL_LOCK = 1_213_354_068
// A guard waits for the table's writers to pause; it does not make them wait for long.
const TABLE_LOCK_TIMEOUT_MS = 3000

/**
 * Installs or brings up to date one region's boundary, in one transaction. Changes nothing when it stands as configured.
 * @throws `wrong-database`, `newer-schema`, `privilege-missing`, `config-invalid`, `region-unreachable`, `outcome-unknown`
 */
export async function installBoundary(options: {
  readonly config: Config
  readonly region: RegionConfig
  readonly secrets: Secrets
  readonly dryRun: boolean
}): Promise<BoundaryInstallation> {
  const { config, region, secrets, dryRun } = options
  const connection = createConnection({
    login: region.database.admin ?? region.database.operator,
    secrets,
    name: `${region.name} database`,
    applicationName: 'homeregion init',
    callTimeoutMs: Math.max(config.policy.callTimeoutMs, 2 * TABLE_LOCK_TIMEOUT_MS),
    unreachable: 'region-unreachable',
  })
  try {
    const boundary = renderBoundary(config, region)
    if (await stands(connection, boundary, config, region)) return { shown: [], applied: false }
    const shown = boundary.statements.map(s => `-- ${s.why}\n${s.sql};`)
    if (dryRun) return { shown, applied: false }
    // If the process dies before the commit arrives nothing was installed; after it, everything was.
    await connection.transaction('write', [
      { sql: 'select pg_advisory_xact_lock($1)', parameters: [INSTALL_LOCK] },
      {
        sql: `select set_config('lock_timeout', $1, true), set_config('client_min_messages', 'warning', true)`,
        parameters: [`${TABLE_LOCK_TIMEOUT_MS}ms`],
      },
      ...boundary.statements.map(s => ({ sql: s.sql })),
    ])
    return { shown, applied: true }
  } catch (error) {
    throw configurationError(error, region.name) ?? boundaryError(error, region.name)
  } finally {
    await connection.close()
  }
}

/** True when the same boundary is installed and the catalogue shows every guard in place. */
async function stands(connection: Connection, boundary: Boundary, config: Config, region: RegionConfig): Promise<boolean> {
  const present = await connection.query('read', `select to_regclass('homeregion.installed') is not null as present`)
  if (present.rows[0]?.present !== true) return false
  const { rows } = await connection.query('read', 'select region, version, config_hash from homeregion.installed')
  const installed = rows[0]
  if (installed === undefined) return false
  if (installed.region !== boundaryRegion(config, region))
    throw new HomeregionError('wrong-database', {
      fact: `the database configured for ${region.name} ${whose(String(installed.region))}: its boundary says so`,
      state: 'Nothing was changed there.',
      next: 'homeregion config show',
    })
  if (Number(installed.version) > BOUNDARY_VERSION)
    throw new HomeregionError('newer-schema', {
      fact: `${region.name}'s boundary is at version ${Number(installed.version)}, this homeregion knows versions up to ${BOUNDARY_VERSION}`,
      state: 'Nothing was changed there.',
      next: 'install a newer homeregion',
    })
  return installed.config_hash === boundary.hash && (await guardProblems(connection, boundary.expected)).length === 0
}

/** A boundary is never turned into the other topology's under the writers: what each key's home means would change between two statements. */
function whose(installed: string): string {
  return installed === ALL_REGIONS ? 'is shared by all regions (topology: shared)' : `is ${installed}'s alone (topology: independent)`
}

/** A table, column or role of the configuration that the database does not have, or that cannot be guarded. */
function configurationError(error: unknown, region: string): HomeregionError | null {
  const state = sqlstate(error)
  if (state === null || !['HR006', '42P01', '42703', '42704', '3F000'].includes(state)) return null
  return new HomeregionError(
    'config-invalid',
    {
      fact: `${region} database: ${(error instanceof Error ? error.message : String(error)).replace(/^homeregion: /, '')}`,
      state: 'Nothing was installed there.',
      next: 'homeregion config show',
    },
    { cause: error, fields: { region, sqlstate: state } },
  )
}
