import { HomeregionError } from '../../domain/errors.ts'
import type { Json } from '../../domain/evidence.ts'
import type { ReconcileCount, ReconcileDecision, ReconcileFinding, ReconcileItem, ReconcileKind } from '../../domain/failover.ts'
import type { Connection, Row } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { isoTime } from './ownership-records.ts'
import { requireVersion } from './schema-version.ts'
import { storableJson } from './storable-json.ts'

// Contents are the service's own rows; a statement's parameter stays at a few megabytes.
const CHUNK = 1_000

/** Each chunk by itself: what was listed before a crash is there, and listing it again adds nothing. */
export async function putReconcileItems(connection: Connection, runId: string, items: readonly ReconcileFinding[]): Promise<void> {
  for (let from = 0; from < items.length; from += CHUNK) {
    const chunk = items.slice(from, from + CHUNK)
    await connection.transaction('write', [
      requireVersion(),
      {
        sql: `insert into homeregion_control.reconcile_item (run_id, id, key, kind, subject, content)
select $1, i.id, i.key, i.kind, i.subject, coalesce(i.content, 'null'::jsonb)
from jsonb_to_recordset($2::jsonb) as i(id text, key text, kind text, subject text, content jsonb)
on conflict (run_id, id) do nothing`,
        parameters: [runId, storableJson(chunk)],
      },
      // What has something undecided is not level, whatever was said of it before.
      {
        sql: `update homeregion_control.exile e set level_at = null where e.ended_at is null and e.level_at is not null
  and exists (select 1 from homeregion_control.forced_failover f where f.run_id = $1 and f.source = e.region and f.at >= e.since)
  and exists (select 1 from homeregion_control.reconcile_item i where i.run_id = $1 and i.decision is null)`,
        parameters: [runId],
      },
      ...appendAudit({ event: 'reconcile-listed', runId, key: null, detail: { items: chunk.length, first: chunk[0]?.id ?? null } }),
    ])
  }
}

export async function readReconcileItems(
  connection: Connection,
  runId: string,
  filter: { key?: string; id?: string; undecided?: boolean; after?: { readonly key: string; readonly id: string }; limit: number },
): Promise<readonly ReconcileItem[]> {
  const found = await connection.query(
    'read',
    `select i.* from homeregion_control.reconcile_item i
    where i.run_id = $1 and ($2::text is null or i.key = $2) and (not $3::boolean or i.decision is null)
      and ($4::text is null or (i.key, i.id) > ($4, $5)) and ($7::text is null or i.id = $7)
    order by i.key, i.id limit $6`,
    [
      runId,
      filter.key ?? null,
      filter.undecided ?? false,
      filter.after?.key ?? null,
      filter.after?.id ?? null,
      filter.limit,
      filter.id ?? null,
    ],
  )
  return found.rows.map(item)
}

export async function countReconcileItems(connection: Connection, runIds: readonly string[]): Promise<readonly ReconcileCount[]> {
  const counted = await connection.query(
    'read',
    `select r.id, count(i.run_id) as found, count(i.run_id) filter (where i.decision is null) as undecided
    from unnest($1::text[]) with ordinality as r(id, nth) left join homeregion_control.reconcile_item i on i.run_id = r.id
    group by r.id, r.nth order by r.nth`,
    [runIds],
  )
  return counted.rows.map(row => ({ runId: row.id as string, found: Number(row.found), undecided: Number(row.undecided) }))
}

export async function decideReconcileItem(
  connection: Connection,
  runId: string,
  id: string,
  decision: ReconcileDecision,
  reason: string,
): Promise<ReconcileItem> {
  const known = await find(connection, runId, id)
  if (known?.decision === decision) return known
  if (known === null)
    throw new HomeregionError('unknown-run', {
      fact: `run ${runId} has no item ${id} to reconcile`,
      state: 'Nothing was decided.',
      next: `homeregion reconcile ${runId}`,
    })
  if (known.decision !== null) throw decidedOtherwise(known)
  await connection.transaction('write', [
    requireVersion(),
    {
      sql: `update homeregion_control.reconcile_item set decision = $3, reason = $4, decided_at = now(), decided_by = session_user
where run_id = $1 and id = $2 and decision is null`,
      parameters: [runId, id, decision, reason],
    },
    ...appendAudit({ event: `reconcile-${decision}`, runId, key: known.key, detail: { id, subject: known.subject, reason } }),
  ])
  const now = await find(connection, runId, id)
  // Somebody else was faster.
  if (now?.decision !== decision) throw decidedOtherwise(now ?? known)
  return now
}

async function find(connection: Connection, runId: string, id: string): Promise<ReconcileItem | null> {
  const found = await connection.query('read', 'select * from homeregion_control.reconcile_item where run_id = $1 and id = $2', [runId, id])
  return found.rows[0] === undefined ? null : item(found.rows[0])
}

function decidedOtherwise({ runId, id, decision, decidedBy, decidedAt }: ReconcileItem): HomeregionError {
  return new HomeregionError('epoch-moved', {
    fact: `item ${id} was ${decision ?? 'changed'} already, by ${decidedBy ?? '?'} at ${decidedAt ?? '?'}`,
    state: 'That decision stands.',
    next: `homeregion reconcile ${runId} --undecided`,
  })
}

function item(row: Row): ReconcileItem {
  return {
    runId: row.run_id as string,
    id: row.id as string,
    key: row.key as string,
    kind: row.kind as ReconcileKind,
    subject: row.subject as string,
    content: row.content as Json,
    foundAt: isoTime(row.found_at),
    decision: row.decision as ReconcileDecision | null,
    reason: row.reason as string | null,
    decidedAt: row.decided_at === null ? null : isoTime(row.decided_at),
    decidedBy: row.decided_by as string | null,
  }
}
