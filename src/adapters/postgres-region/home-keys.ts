import type { BoundaryRow } from '../../domain/boundary.ts'
import type { Connection } from '../postgres/connection.ts'
import { boundaryRow } from './region-operations.ts'

/**
 * Keys that may be written in this region, or could be if nothing fenced it as a whole. Where each region has its own database, a key that is
 * writable there counts whatever its row says.
 */
export async function homeKeys(
  connection: Connection,
  region: string,
  own: boolean,
  page: { readonly after: string | null; readonly limit: number },
): Promise<readonly BoundaryRow[]> {
  const { rows } = await connection.query(
    'read',
    `select key, home_region, epoch, state, token, barrier_event_id, writable from homeregion.state
    where ((home_region = $1 and state = 'ACTIVE') or ($2 and writable)) and ($3::text is null or key > $3::text collate "C")
    order by key limit $4`,
    [region, own, page.after, page.limit],
  )
  return rows.map(row => boundaryRow(row, region))
}
