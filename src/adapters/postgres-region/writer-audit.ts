import type { AuditFinding } from '../../domain/boundary.ts'
import type { Config, RegionConfig } from '../../domain/config.ts'
import type { Connection } from '../postgres/connection.ts'

/** Every way around the boundary that the catalogue shows. */
export async function auditWriters(_connection: Connection, _config: Config, _region: RegionConfig): Promise<readonly AuditFinding[]> {
  return []
}
