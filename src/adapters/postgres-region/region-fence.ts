import type { InFlightWrite } from '../../domain/boundary.ts'
import { BOUNDARY_FENCE, FENCE_KINDS, type FenceCause, type FenceKind, type FenceStatus } from '../../domain/fence.ts'
import type { FenceWish } from '../../domain/fence-wish.ts'
import type { Connection } from '../postgres/connection.ts'
import { isoTime } from './region-facts.ts'
import { inFlightWrite } from './region-operations.ts'

/** What stands in `homeregion.fence`, and how many of the region's keys the guard admits. */
export type FenceReading = {
  /** null: lifted. */
  readonly standing: (Pick<FenceStatus, 'since'> & FenceWish & { readonly state: 'applying' | 'applied' | 'lifting' }) | null
  readonly writableKeys: number
  /** Kinds of the region's other fences that stand, or were begun. */
  readonly others: readonly FenceKind[]
}

/** The boundary's functions for all keys of a region at once, one round trip each. */
export type RegionFence = {
  read(): Promise<FenceReading>
  /** Returns how many keys it took out of `writable`. */
  fence(cause: FenceCause): Promise<number>
  /** Returns how many keys it had to sweep once more. */
  settle(): Promise<number>
  /** Returns how many keys it made writable; null: it stands for another wish, and was not lifted. */
  lift(asked: number | null): Promise<number | null>
  /** Transactions admitted before the call that have not ended within `waitMs`. */
  inFlight(waitMs: number): Promise<readonly InFlightWrite[]>
}

// One look at the locks on a slow machine, beyond the waiting itself.
const IN_FLIGHT_MARGIN_MS = 2000

export function createRegionFence(connection: Connection, region: string): RegionFence {
  const count = async (sql: string, parameters: readonly unknown[]) =>
    Number((await connection.query('write', sql, parameters)).rows[0]?.keys)
  return {
    read: async () => {
      const { rows } = await connection.query(
        'read',
        `select k.keys, f.name, f.kind, f.state, f.since, f.reason, f.applied_by, f.run_id, f.asked
         from (select homeregion.writable_keys($1) as keys) k left join homeregion.fence f on f.region = $1`,
        [region],
      )
      const own = rows.find(row => row.name === BOUNDARY_FENCE)
      const kinds = rows.filter(row => row.name !== BOUNDARY_FENCE).map(row => FENCE_KINDS.find(k => k === row.kind))
      return {
        writableKeys: Number(rows[0]?.keys),
        others: kinds.filter(k => k !== undefined),
        standing: own === undefined ? null : standing(own),
      }
    },
    fence: async cause =>
      await count('select homeregion.fence_region($1, $2, $3, $4, $5) as keys', [
        region,
        BOUNDARY_FENCE,
        cause.reason,
        cause.by,
        cause.runId,
      ]),
    settle: async () => await count('select homeregion.settle_region($1, $2) as keys', [region, BOUNDARY_FENCE]),
    lift: async asked => {
      const { rows } = await connection.query('write', 'select homeregion.lift_region($1, $2, $3) as keys', [region, BOUNDARY_FENCE, asked])
      const keys = rows[0]?.keys
      return keys === null ? null : Number(keys)
    },
    inFlight: async waitMs => {
      const wait = Math.max(0, Math.round(waitMs))
      const sql = 'select * from homeregion.region_in_flight($1, $2)'
      return (await connection.query('read', sql, [region, wait], wait + IN_FLIGHT_MARGIN_MS)).rows.map(inFlightWrite)
    },
  }
}

function standing(row: Readonly<Record<string, unknown>>): NonNullable<FenceReading['standing']> {
  const state = (['applying', 'applied', 'lifting'] as const).find(s => s === row.state)
  return {
    state: state ?? 'applying',
    since: isoTime(row.since),
    asked: Number(row.asked),
    cause: { reason: String(row.reason), by: String(row.applied_by), runId: typeof row.run_id === 'string' ? row.run_id : null },
  }
}
