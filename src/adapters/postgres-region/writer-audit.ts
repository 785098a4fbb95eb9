import type { AuditFinding } from '../../domain/boundary.ts'
import type { Config, RegionConfig } from '../../domain/config.ts'
import type { Connection, Row } from '../postgres/connection.ts'
import type { BoundaryExpectation } from './boundary-sql.ts'
import { guards } from './guards.ts'
import { loginRole, relation } from './quoting.ts'
import { guardProblems } from './region-facts.ts'
import { sqlText } from './sql-file.ts'
import { operatorsThere, regionsThere } from './topology.ts'

/**
 * Every way around the boundary that the catalogue shows and that somebody can log in to use. What cannot be closed (a superuser
 * exists, the administrator's login owns the tables) counts as accepted while no writer uses it and nobody is connected with it.
 */
export async function auditWriters(
  connection: Connection,
  config: Config,
  region: RegionConfig,
  expected: BoundaryExpectation,
): Promise<readonly AuditFinding[]> {
  const tables = guards(config)
  const [ways, problems] = await Promise.all([
    connection.query('read', sqlText('audit.sql'), [
      tables.map(relation),
      [relation(config.inbox)],
      [...new Set(tables.map(t => t.key))],
      operatorsThere(config, region),
    ]),
    guardProblems(connection, expected),
  ])
  const admin = region.database.admin === null ? null : loginRole(region.database.admin)
  const writers = regionsThere(config, region).flatMap(r => r.database.writers.map(w => w.role))
  const found = ways.rows.map(row => finding(row, writers, admin))
  const guard = problems.map(
    (why): AuditFinding => ({ kind: 'guard', subject: why.split(':')[0] ?? why, why, closes: 'homeregion init', accepted: false }),
  )
  return [...guard, ...found].map(f => ({ ...f, accepted: f.accepted || isAccepted(f, region) }))
}

function finding(row: Row, writers: readonly string[], admin: string | null): AuditFinding {
  const [kind, subject] = [String(row.kind), String(row.subject)]
  const known = kind === 'superuser' || subject === admin
  const dormant = known && row.live !== true && !writers.includes(subject)
  return {
    kind,
    subject,
    why: String(row.why) + (dormant ? '; no declared writer uses it, and it has no session in this database now' : ''),
    closes: typeof row.closes === 'string' ? row.closes : null,
    accepted: dormant,
  }
}

function isAccepted(f: AuditFinding, region: RegionConfig): boolean {
  return region.acceptedWriters.some(a => a.kind === f.kind && a.subject === f.subject)
}
