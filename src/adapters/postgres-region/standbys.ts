import type { Standby, StandbyReport } from '../../domain/boundary.ts'
import type { RegionConfig } from '../../domain/config.ts'
import type { Connection, Row } from '../postgres/connection.ts'

/** `kind` of the exception by which operators accept a standby that is away; `subject` is its replication slot. */
const AWAY = 'standby-slot'

/** The physical standbys that the primary knows, those that operators gave up with a reason left out. */
export async function readStandbys(connection: Connection, region: RegionConfig, lsn: string | null): Promise<StandbyReport> {
  const { rows } = await connection.query('read', 'select * from homeregion.standbys($1)', [lsn])
  const accepted = region.acceptedWriters.filter(a => a.kind === AWAY).map(a => a.subject)
  const standbys = rows.filter(row => typeof row.name === 'string').map(standby)
  return { lsn: String(rows[0]?.lsn), standbys: standbys.filter(s => s.state !== 'disconnected' || !accepted.includes(s.name)) }
}

function standby(row: Row): Standby {
  const text = (value: unknown) => (typeof value === 'string' ? value : null)
  return {
    name: String(row.name),
    address: text(row.address),
    state: String(row.state),
    sync: text(row.sync),
    flushLsn: text(row.flush_lsn),
    flushed: row.flushed === true,
  }
}
