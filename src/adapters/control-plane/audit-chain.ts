import { createHash } from 'node:crypto'
import type { Json } from '../../domain/evidence.ts'
import type { AuditEntry } from '../../domain/journal.ts'
import type { Connection, Row, Statement } from '../postgres/connection.ts'
import { isoTime } from './ownership-records.ts'
import { REFUSAL } from './refusals.ts'
import { storableJson } from './storable-json.ts'

export type AuditEvent = { readonly event: string; readonly runId: string | null; readonly key: string | null; readonly detail: Json }

/** The text a row is sealed over: the hash before it, then all it says. jsonb gives one text for one value. */
function sealed(from: {
  prev: string
  seq: string
  at: string
  actor: string
  event: string
  run: string
  key: string
  detail: string
}): string {
  const at = `to_char(${from.at} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
  return `jsonb_build_array(${[from.prev, from.seq, at, from.actor, from.event, from.run, from.key, from.detail].join(', ')})::text`
}

const ENTRY = sealed({
  ...{ prev: 'h.hash', seq: 'h.seq + 1', at: 'now()', actor: 'session_user::text' },
  ...{ event: '$1::text', run: '$2::text', key: '$3::text', detail: '$4::jsonb' },
})

const STORED = sealed({
  ...{ prev: 'a.prev_hash', seq: 'a.seq', at: 'a.at', actor: 'a.actor', event: 'a.event', run: 'a.run_id', key: 'a.key' },
  detail: 'a.detail',
})

/**
 * Appends one row, hashed by the server under a lock of the chain's head, so that a journal commit stays one round trip. It goes
 * last in its transaction: the lock is held for the commit only. The second statement has a snapshot of its own, newer than the lock.
 */
export function appendAudit(entry: AuditEvent): readonly Statement[] {
  return [
    { sql: 'select seq from homeregion_control.audit_head where id = 1 for update' },
    {
      sql: `with entry as (
  insert into homeregion_control.audit (seq, event, run_id, key, detail, prev_hash, hash)
  select h.seq + 1, $1::text, $2::text, $3::text, $4::jsonb, h.hash, encode(sha256(convert_to(${ENTRY}, 'UTF8')), 'hex')
  from homeregion_control.audit_head h where h.id = 1
  returning seq, hash
), head as (
  update homeregion_control.audit_head h set seq = e.seq, hash = e.hash from entry e where h.id = 1 returning h.seq
)
select homeregion_control.require((select count(*) from head) = 1, '${REFUSAL.auditHead}', 'the head of the audit chain is missing')`,
      parameters: [entry.event, entry.runId, entry.key, storableJson(entry.detail)],
    },
  ]
}

export async function readAudit(connection: Connection, limit: number): Promise<readonly AuditEntry[]> {
  const found = await connection.query('read', 'select * from homeregion_control.audit order by seq desc limit $1', [limit])
  return found.rows.map(row => ({
    seq: Number(row.seq),
    at: isoTime(row.at),
    actor: row.actor as string,
    event: row.event as string,
    runId: row.run_id as string | null,
    key: row.key as string | null,
    detail: row.detail as Json,
    hash: row.hash as string,
  }))
}

// A page of a few hundred kilobytes: large enough to be quick, small enough for the memory of a small machine.
const PAGE = 1_000

/** Recomputes every hash here, not in the database that is being doubted. Returns the first row that does not fit, else null. */
export async function findAuditBreak(connection: Connection): Promise<number | null> {
  // Read first: rows appended while we walk are beyond it.
  const end = (await connection.query('read', 'select seq, hash from homeregion_control.audit_head where id = 1')).rows[0]
  let last = { seq: 0, hash: '0'.repeat(64) }
  for (;;) {
    const page = await connection.query(
      'read',
      `select a.seq, a.prev_hash, a.hash, ${STORED} as sealed from homeregion_control.audit a where a.seq > $1 order by a.seq limit ${PAGE}`,
      [last.seq],
    )
    for (const row of page.rows) {
      if (!follows(row, last)) return Number(row.seq)
      last = { seq: Number(row.seq), hash: row.hash as string }
      // What the head says was last must be what stands there: a rewritten chain would fit in itself.
      if (last.seq === Number(end?.seq) && last.hash !== end?.hash) return last.seq
    }
    if (page.rows.length < PAGE) break
  }
  // Rows that the head knows of are gone.
  return end === undefined || last.seq < Number(end.seq) ? last.seq + 1 : null
}

function follows(row: Row, last: { readonly seq: number; readonly hash: string }): boolean {
  const hash = createHash('sha256')
    .update(row.sealed as string, 'utf8')
    .digest('hex')
  return Number(row.seq) === last.seq + 1 && row.prev_hash === last.hash && row.hash === hash
}
