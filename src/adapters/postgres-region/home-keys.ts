import type { BoundaryRow } from '../../domain/boundary.ts'
import type { KnownRecord } from '../../domain/ports.ts'
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

/** One statement for all of them: it is asked while a region is dark. */
export async function aheadOf(
  connection: Connection,
  region: string,
  records: readonly KnownRecord[],
  limit: number,
): Promise<{ readonly count: number; readonly rows: readonly BoundaryRow[] }> {
  const { rows } = await connection.query(
    'read',
    `select s.key, s.home_region, s.epoch, s.state, s.token, s.barrier_event_id, s.writable, count(*) over () as count
    from unnest($1::text[], $2::bigint[], $3::text[]) as asked(key, epoch, home) join homeregion.state s on s.key = asked.key collate "C"
    where s.epoch > asked.epoch or (s.epoch = asked.epoch and s.home_region <> asked.home)
    order by s.key limit $4`,
    [records.map(r => r.key), records.map(r => r.epoch), records.map(r => r.homeRegion), limit],
  )
  return { count: Number(rows[0]?.count ?? 0), rows: rows.map(row => boundaryRow(row, region)) }
}
