import type { AuditFinding } from '../../domain/boundary.ts'
import type { Config, RegionConfig } from '../../domain/config.ts'
import { FENCE_KINDS, type FenceKind } from '../../domain/fence.ts'
import type { Connection, Row } from '../postgres/connection.ts'
import type { BoundaryExpectation } from './boundary-sql.ts'
import { guards } from './guards.ts'
import { stoppingThere } from './lease-texts.ts'
import { loginRole, relation } from './quoting.ts'
import { guardProblems } from './region-facts.ts'
import { sqlText } from './sql-file.ts'
import { fencersThere, operatorsThere, regionsThere } from './topology.ts'

const PARTS = ['audit.sql', 'audit-writers.sql', 'audit-environment.sql'] as const

/**
 * Every way around a fence of the region that the catalogue shows and that somebody can use, in one round trip; each names the fences it gets
 * around. What cannot be closed (a superuser exists, the administrator's login owns the tables) counts as accepted while no writer uses it and
 * nobody is connected with it.
 */
export async function auditWriters(
  connection: Connection,
  config: Config,
  region: RegionConfig,
  expected: BoundaryExpectation,
): Promise<readonly AuditFinding[]> {
  const scope = sqlText('audit-scope.sql')
  const covered = coveredLogins(config, region)
  const parameters = auditParameters(config, region, covered)
  const [problems, ...parts] = await Promise.all([
    guardProblems(connection, expected),
    ...PARTS.map(async part => await connection.query('read', scope + sqlText(part), parameters)),
  ])
  const prepared = stoppingThere(config, region).length === 0 ? [] : await preparedTransactions(connection)
  const admin = region.database.admin === null ? null : loginRole(region.database.admin)
  const writers = regionsThere(config, region).flatMap(r => r.database.writers.map(w => w.role))
  const guard = problems.map(
    (why): AuditFinding => ({
      kind: 'guard',
      subject: why.split(':')[0] ?? why,
      why,
      closes: 'homeregion init',
      around: ['boundary'],
      accepted: false,
    }),
  )
  const found = parts.flatMap(p => p.rows).map(row => finding(row, writers, admin, covered))
  return [...guard, ...prepared, ...found.filter(f => f !== null)].map(f => ({ ...f, accepted: f.accepted || isAccepted(f, region) }))
}

/** A planned fence waits for them, so they stand in no planned move's way; a lease that is waited out from elsewhere cannot see them. */
async function preparedTransactions(connection: Connection): Promise<readonly AuditFinding[]> {
  const { rows } = await connection.query('read', `select current_setting('max_prepared_transactions')::int as most`)
  if (Number(rows[0]?.most) === 0) return []
  return [
    {
      kind: 'prepared-transactions',
      subject: 'max_prepared_transactions',
      why: `is ${Number(rows[0]?.most)}: a transaction whose constraints were checked early can be prepared, and committed after the lease is over`,
      closes: 'alter system set max_prepared_transactions = 0 (and restart)',
      around: [],
      accepted: false,
    },
  ]
}

/** Logins that the region's credentials fences hold; where none is configured, those that one would: the declared writers, and other regions' here. */
function coveredLogins(config: Config, region: RegionConfig): readonly string[] {
  const fenced = region.fences.flatMap(f => (f.kind === 'credentials' ? f.roles.map(r => r.role) : []))
  const own = fenced.length > 0 ? fenced : region.database.writers.map(w => w.role)
  const others = regionsThere(config, region).filter(r => r.name !== region.name)
  return [...new Set([...own, ...others.flatMap(r => r.database.writers.map(w => w.role))])]
}

function auditParameters(config: Config, region: RegionConfig, covered: readonly string[]): readonly unknown[] {
  const tables = guards(config)
  return [
    tables.map(relation),
    [relation(config.inbox)],
    [...new Set(tables.map(t => t.key))],
    operatorsThere(config, region),
    regionsThere(config, region).flatMap(r => r.database.writers.map(w => w.role)),
    covered,
    fencersThere(config, region),
    relation(config.outbox),
    config.outbox.columns.publishedAt,
    config.topology === 'independent',
  ]
}

/** null: it gets around nothing, because the login it needs is held by the credentials fence. */
function finding(row: Row, writers: readonly string[], admin: string | null, covered: readonly string[]): AuditFinding | null {
  const [kind, subject] = [String(row.kind), String(row.subject)]
  const told = Array.isArray(row.around) ? FENCE_KINDS.filter(k => (row.around as unknown[]).includes(k)) : []
  const around: readonly FenceKind[] = covered.includes(subject) ? told.filter(k => k !== 'credentials') : told
  if (around.length === 0 && told.length > 0) return null
  const known = kind === 'superuser' || subject === admin
  const dormant = known && row.live !== true && !writers.includes(subject)
  return {
    kind,
    subject,
    why: String(row.why) + (dormant ? '; no declared writer uses it, and it has no session in this database now' : ''),
    closes: typeof row.closes === 'string' ? row.closes : null,
    around,
    // What gets around no fence as it stands is told, and asks for nothing.
    accepted: dormant || around.length === 0,
  }
}

function isAccepted(f: AuditFinding, region: RegionConfig): boolean {
  return region.acceptedWriters.some(a => a.kind === f.kind && a.subject === f.subject)
}
