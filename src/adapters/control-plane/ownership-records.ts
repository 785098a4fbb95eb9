import type { OwnershipRecord, OwnershipState } from '../../domain/ownership.ts'
import type { LogRow } from '../../domain/ports.ts'
import type { Row } from '../postgres/connection.ts'

/** Columns of an ownership row `o`, for `ownershipRecord`. */
export const OWNERSHIP_COLUMNS = 'o.key, o.seq, o.state, o.home_region, o.epoch, o.target_region, o.run_id, o.changed_at, o.changed_by'

/** The same of a log row `l`. */
export const LOG_COLUMNS = `l.key, l.seq, l.to_state as state, l.to_home as home_region, l.to_epoch as epoch,
  l.to_target as target_region, l.run_id, l.at as changed_at, l.actor as changed_by, l.transition`

/** The schema's constraints hold what the types say; this is where rows are taken at their word. */
export function ownershipRecord(row: Row): OwnershipRecord {
  return {
    key: row.key as string,
    homeRegion: row.home_region as string,
    targetRegion: none(row.target_region),
    epoch: Number(row.epoch),
    state: row.state as OwnershipState,
    seq: Number(row.seq),
    runId: none(row.run_id),
    changedAt: isoTime(row.changed_at),
    changedBy: row.changed_by as string,
  }
}

export function logRow(row: Row): LogRow {
  return { ...ownershipRecord(row), transition: row.transition as string }
}

export function isoTime(value: unknown): string {
  return value instanceof Date ? value.toISOString() : String(value)
}

/** Empty text stands for none in the tables. */
function none(value: unknown): string | null {
  return value === '' ? null : (value as string)
}
