import type { BoundaryRow, InFlightWrite, Rejections } from '../../domain/boundary.ts'
import { STATES } from '../../domain/ownership.ts'
import type { RegionDatabase } from '../../domain/ports.ts'
import type { Connection, Effect, Row, Rows } from '../postgres/connection.ts'

export type Operations = Pick<
  RegionDatabase,
  'read' | 'claim' | 'drain' | 'inFlight' | 'fence' | 'open' | 'openMany' | 'follow' | 'followMany' | 'register' | 'rejections'
>

/** The boundary's functions, one autocommit statement and one round trip each. */
export function createOperations(connection: Connection, region: string): Operations {
  const call = async (effect: Effect, sql: string, parameters: readonly unknown[], timeoutMs?: number): Promise<Rows> =>
    await connection.query(effect, sql, parameters, timeoutMs)
  const change = async (sql: string, parameters: readonly unknown[]): Promise<BoundaryRow> => {
    const row = (await call('write', sql, parameters)).rows[0]
    if (row === undefined) throw new Error(`${region} database answered a change of ownership without a row`)
    return boundaryRow(row, region)
  }
  return {
    read: async key => {
      const row = (await call('read', 'select * from homeregion.read($1)', [key])).rows[0]
      return row === undefined ? null : boundaryRow(row, region)
    },
    claim: async (key, owner, token) =>
      await change('select * from homeregion.claim($1, $2, $3, $4)', [key, owner.homeRegion, owner.epoch, token]),
    drain: async (key, epoch, token) => await change('select * from homeregion.drain($1, $2, $3)', [key, epoch, token]),
    inFlight: async (key, waitMs) => {
      const { rows } = await call(
        'read',
        'select * from homeregion.in_flight($1, $2)',
        [key, Math.max(0, Math.round(waitMs))],
        waitMs + IN_FLIGHT_MARGIN_MS,
      )
      return rows.map(inFlightWrite)
    },
    fence: async (key, epoch, token, barrierEventId) =>
      await change('select * from homeregion.fence($1, $2, $3, $4)', [key, epoch, token, barrierEventId]),
    open: async (key, epoch, token) => await change('select * from homeregion.open($1, $2, $3)', [key, epoch, token]),
    openMany: async (keys, token) => {
      // In key order, so that two openings cannot wait for each other.
      const { rows } = await call(
        'write',
        `select r.* from (select k.key, k.epoch from unnest($1::text[], $2::bigint[]) as k(key, epoch) order by k.key collate "C") k,
        lateral homeregion.open(k.key, k.epoch, $3) r`,
        [keys.map(k => k.key), keys.map(k => k.epoch), token],
      )
      return rows.map(row => boundaryRow(row, region))
    },
    follow: async (key, homeRegion, epoch, token) =>
      await change('select * from homeregion.follow($1, $2, $3, $4)', [key, homeRegion, epoch, token]),
    followMany: async keys => {
      // In key order, as openMany. The token is read as the statement begins: one that rose since belongs to a run, which refuses this.
      const { rows } = await call(
        'write',
        `select r.* from (
          select k.key, k.home, k.epoch, coalesce(o.token, 0) as token from unnest($1::text[], $2::text[], $3::bigint[]) as k(key, home, epoch)
          left join homeregion.ownership o on o.key = k.key collate "C" order by k.key collate "C") k,
        lateral homeregion.follow(k.key, k.home, k.epoch, k.token) r`,
        [keys.map(k => k.key), keys.map(k => k.homeRegion), keys.map(k => k.epoch)],
      )
      return rows.map(row => boundaryRow(row, region))
    },
    register: async keys => {
      const { rows } = await call('write', 'select * from homeregion.register($1, $2, $3)', [
        keys.map(k => k.key),
        keys.map(k => k.homeRegion),
        keys.map(k => k.epoch),
      ])
      return rows.map(row => boundaryRow(row, region))
    },
    rejections: async () => rejections((await call('read', 'select * from homeregion.rejections()', [])).rows[0] ?? {}),
  }
}

// The list of holders and one short queueing for the lock, on a slow machine.
const IN_FLIGHT_MARGIN_MS = 3000

/** A row of `homeregion.state`, as `region` sees it. */
export function boundaryRow(row: Row, region: string): BoundaryRow {
  const state = STATES.find(s => s === row.state)
  if (state === undefined) throw new Error(`the boundary answered with the unknown state ${String(row.state)}`)
  return {
    key: String(row.key),
    homeRegion: String(row.home_region),
    epoch: Number(row.epoch),
    state,
    token: Number(row.token),
    barrierEventId: text(row.barrier_event_id),
    // Where regions share a database, it is writable for one of them.
    writable: row.writable === true && row.home_region === region,
  }
}

export function inFlightWrite(row: Row): InFlightWrite {
  return {
    pid: row.pid === null ? null : Number(row.pid),
    role: text(row.role),
    application: text(row.application),
    state: String(row.state),
    ageMs: row.age_ms === null ? null : Number(row.age_ms),
    gid: text(row.gid),
  }
}

function rejections(row: Row): Rejections {
  return {
    notHome: Number(row.not_home),
    draining: Number(row.draining),
    fenced: Number(row.fenced),
    staleEpoch: Number(row.stale_epoch),
    unknownKey: Number(row.unknown_key),
    truncate: Number(row.truncate),
    apply: Number(row.apply),
    regionFenced: Number(row.region_fenced),
    leaseOver: Number(row.lease_over),
    since: row.since instanceof Date ? row.since.toISOString() : String(row.since),
  }
}

function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}
