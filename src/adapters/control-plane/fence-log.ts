import type { Json } from '../../domain/evidence.ts'
import type { FenceEntry, FenceEvent, FenceKind, LoggedFence } from '../../domain/fence.ts'
import type { Connection, Row } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { isoTime } from './ownership-records.ts'
import { violated } from './refusals.ts'
import { requireVersion } from './schema-version.ts'
import { storableJson } from './storable-json.ts'

const COLUMNS =
  'l.id::text, l.region, l.fence, l.kind, l.event, l.at, l.recorded_at, l.recorded_by, l.said_by, l.host, l.run_id, l.reason, l.detail'

/** Processes of one machine may hand over the same file at once; each try is lost to one that succeeded. */
const TRIES = 5

/**
 * All or none in one transaction, with an entry of the audit chain for each that is new. One that is here already is left as it is: the same
 * machine sends it again when the answer was lost.
 */
export async function appendFenceLog(connection: Connection, entries: readonly FenceEntry[]): Promise<void> {
  for (let left = TRIES; ; left--) {
    const added = await unknownYet(connection, entries)
    if (added.length === 0) return
    try {
      await append(connection, added)
      return
    } catch (error) {
      // Somebody else handed one of them over since we looked, and told the audit chain of it.
      if (violated(error) !== 'fence_log_pkey' || left === 1) throw error
    }
  }
}

async function unknownYet(connection: Connection, entries: readonly FenceEntry[]): Promise<readonly FenceEntry[]> {
  if (entries.length === 0) return []
  const known = await connection.query(
    'read',
    `select l.id::text from homeregion_control.fence_log l where l.id in (select e.id from jsonb_to_recordset($1::jsonb) as e(id uuid))`,
    [storableJson(entries.map(e => ({ id: e.id })))],
  )
  const ids = new Set(known.rows.map(row => String(row.id)))
  return entries.filter(e => !ids.has(e.id))
}

async function append(connection: Connection, added: readonly FenceEntry[]): Promise<void> {
  await connection.transaction('write', [
    requireVersion(),
    {
      sql: `insert into homeregion_control.fence_log (id, region, fence, kind, event, at, said_by, host, run_id, reason, detail)
select e.id, e.region, e.fence, e.kind, e.event, e.at, e."by", e.host, e."runId", e.reason, coalesce(e.detail, 'null'::jsonb)
from jsonb_to_recordset($1::jsonb) as e(nth bigint, id uuid, region text, fence text, kind text, event text, at timestamptz, "by" text, host text,
  "runId" text, reason text, detail jsonb)
order by e.nth`,
      parameters: [storableJson(added.map((entry, nth) => ({ nth, ...entry })))],
    },
    ...added.flatMap(entry => appendAudit(auditOf(entry))),
  ])
}

/** The note of a fence says what to bring back, which the log keeps; the chain says that it was made. */
function auditOf(entry: FenceEntry): Parameters<typeof appendAudit>[0] {
  const { id, region, fence, kind, event, at, by, host, reason } = entry
  return { event: `fence-${event}`, runId: entry.runId, key: null, detail: { id, region, fence, kind, at, by, host, reason } }
}

export async function readFenceLog(
  connection: Connection,
  filter: { region?: string; fence?: string; events?: readonly FenceEvent[]; limit: number },
): Promise<readonly LoggedFence[]> {
  const found = await connection.query(
    'read',
    `select ${COLUMNS} from homeregion_control.fence_log l
    where ($1::text is null or l.region = $1) and ($2::text is null or l.fence = $2) and ($3::text[] is null or l.event = any($3))
    order by l.nth desc limit $4`,
    [filter.region ?? null, filter.fence ?? null, filter.events ?? null, filter.limit],
  )
  return found.rows.map(logged)
}

export async function readInstallation(connection: Connection): Promise<string> {
  const found = await connection.query('read', 'select identity::text from homeregion_control.installation')
  return String(found.rows[0]?.identity)
}

export async function readFencesTold(connection: Connection): Promise<readonly LoggedFence[]> {
  const found = await connection.query(
    'read',
    `select ${COLUMNS} from homeregion_control.fence_log l
    join (select region, fence, max(nth) as nth from homeregion_control.fence_log where event <> 'noted' group by region, fence) newest
      on newest.nth = l.nth
    order by l.region, l.fence`,
  )
  return found.rows.map(logged)
}

function logged(row: Row): LoggedFence {
  return {
    id: String(row.id),
    region: String(row.region),
    fence: String(row.fence),
    kind: row.kind as FenceKind,
    event: row.event as FenceEvent,
    at: isoTime(row.at),
    by: String(row.said_by),
    host: String(row.host),
    runId: row.run_id as string | null,
    reason: row.reason as string | null,
    detail: row.detail as Json,
    recordedAt: isoTime(row.recorded_at),
    recordedBy: String(row.recorded_by),
  }
}
