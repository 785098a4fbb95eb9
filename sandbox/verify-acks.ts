import pg from 'pg'
import { TRANSITIONS } from '../src/domain/ownership.ts'
import type { Servers } from './config-text.ts'
import { databaseUrl } from './databases.ts'
import { APP_DATABASE, CONTROL_PLANE_DATABASE, REGIONS } from './layout.ts'
import type { Acknowledged } from './load.ts'
import { type Activation, type Findings, type RecordedEvent, verify } from './recorder.ts'
import { readHistory } from './recorder-read.ts'

/**
 * Holds acknowledged writes against both databases and the log of ownership, as they are now. It waits for nothing: what a
 * key's home does not hold at the moment it is home is lost, also if it arrives later. `givenUp` are ids of events that a person let go of after a
 * forced failover: as if nobody had ever written them.
 */
export async function verifyAcks(
  servers: Servers,
  acks: readonly Acknowledged[],
  givenUp: ReadonlySet<string> = new Set(),
): Promise<Findings> {
  const [log, ...histories] = await Promise.all([
    withClient(databaseUrl(servers.controlPlane.adminUrl, CONTROL_PLANE_DATABASE), readActivations),
    ...REGIONS.map(region =>
      withClient(databaseUrl(servers.regions[region].postgres.adminUrl, APP_DATABASE), async client => await readHistory(region, client)),
    ),
  ])
  const dropped = new Set(histories.flatMap(h => h.outbox.flatMap(e => (givenUp.has(e.eventId) ? [writeOf(h.region, e)] : []))))
  return verify(
    acks.filter(ack => !dropped.has(writeOf(ack.region, ack))),
    histories.map(h => ({ ...h, outbox: h.outbox.filter(e => !givenUp.has(e.eventId)) })),
    log,
  )
}

/** The same idempotency key may have been written once more at the new home, by a caller that got no answer. */
function writeOf(region: string, { key, epoch, idempotencyKey }: Pick<RecordedEvent, 'key' | 'epoch' | 'idempotencyKey'>): string {
  return JSON.stringify([region, key, epoch, idempotencyKey])
}

/** Every row of the log under which a key got a new epoch. */
async function readActivations(client: pg.Client): Promise<readonly Activation[]> {
  const names = TRANSITIONS.filter(t => t.epoch !== 'same').map(t => t.name)
  const { rows } = await client.query<Activation>(
    `select key, to_epoch::int as epoch, to_home as "homeRegion" from homeregion_control.ownership_log
     where transition = any ($1) order by key, seq`,
    [names],
  )
  return rows
}

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 5000, statement_timeout: 30_000 })
  client.on('error', () => undefined)
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}
