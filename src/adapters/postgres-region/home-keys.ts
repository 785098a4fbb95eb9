import type { BoundaryRow } from '../../domain/boundary.ts'
import { byCodeUnit } from '../../domain/order.ts'
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

type Ahead = { readonly count: number; readonly rows: readonly BoundaryRow[] }

/** One statement for all keys of a home: it is asked while a region is dark, when all of them have the same as a rule. */
export async function aheadOf(connection: Connection, region: string, records: readonly KnownRecord[], limit: number): Promise<Ahead> {
  const homes = new Map<string, KnownRecord[]>()
  for (const record of records) {
    const known = homes.get(record.homeRegion)
    if (known === undefined) homes.set(record.homeRegion, [record])
    else known.push(record)
  }
  const found = await Promise.all(
    [...homes].map(async ([home, known]): Promise<Ahead> => {
      const { rows } = await connection.query(
        'read',
        `select s.key, s.home_region, s.epoch, s.state, s.token, s.barrier_event_id, s.writable, count(*) over () as count
        from unnest($1::text[], $2::bigint[]) as asked(key, epoch) join homeregion.state s on s.key = asked.key collate "C"
        where s.epoch > asked.epoch or (s.epoch = asked.epoch and s.home_region <> $3)
        order by s.key limit $4`,
        [known.map(r => r.key), known.map(r => r.epoch), home, limit],
      )
      return { count: Number(rows[0]?.count ?? 0), rows: rows.map(row => boundaryRow(row, region)) }
    }),
  )
  return {
    count: found.reduce((sum, f) => sum + f.count, 0),
    rows: found
      .flatMap(f => f.rows)
      .toSorted((a, b) => byCodeUnit(a.key, b.key))
      .slice(0, limit),
  }
}

export async function highestToken(connection: Connection, keys: readonly string[]): Promise<number> {
  const { rows } = await connection.query(
    'read',
    'select coalesce(max(s.token), 0) as token from homeregion.state s where s.key = any ($1)',
    [keys],
  )
  return Number(rows[0]?.token)
}
