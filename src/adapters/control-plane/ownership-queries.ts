import type { OwnershipRecord } from '../../domain/ownership.ts'
import type { LogRow } from '../../domain/ports.ts'
import type { Connection } from '../postgres/connection.ts'
import { LOG_COLUMNS, logRow, OWNERSHIP_COLUMNS, ownershipRecord } from './ownership-records.ts'
import { storableJson } from './storable-json.ts'

export async function findOwnership(connection: Connection, keys: readonly string[]): Promise<readonly OwnershipRecord[]> {
  if (keys.length === 0) return []
  const found = await connection.query(
    'read',
    `select ${OWNERSHIP_COLUMNS} from homeregion_control.ownership o
    where o.key in (select k.key from jsonb_to_recordset($1::jsonb) as k(key text))`,
    [storableJson(keys.map(key => ({ key })))],
  )
  return found.rows.map(ownershipRecord)
}

export async function listOwnership(
  connection: Connection,
  filter: { homeRegion?: string; state?: string; after?: string; limit: number },
): Promise<readonly OwnershipRecord[]> {
  const found = await connection.query(
    'read',
    `select ${OWNERSHIP_COLUMNS} from homeregion_control.ownership o
    where ($1::text is null or o.home_region = $1) and ($2::text is null or o.state = $2) and ($3::text is null or o.key > $3)
    order by o.key limit $4`,
    [filter.homeRegion ?? null, filter.state ?? null, filter.after ?? null, filter.limit],
  )
  return found.rows.map(ownershipRecord)
}

export async function countOwnership(connection: Connection): Promise<readonly { homeRegion: string; state: string; keys: number }[]> {
  const found = await connection.query(
    'read',
    `select home_region, state, count(*) as keys from homeregion_control.ownership
    group by home_region, state order by home_region, state`,
  )
  return found.rows.map(row => ({ homeRegion: row.home_region as string, state: row.state as string, keys: Number(row.keys) }))
}

export async function readHistory(connection: Connection, key: string): Promise<readonly LogRow[]> {
  const found = await connection.query(
    'read',
    `select ${LOG_COLUMNS} from homeregion_control.ownership_log l where l.key = $1 order by l.seq`,
    [key],
  )
  return found.rows.map(logRow)
}
