import type { OutsideFence } from '../../domain/checks.ts'
import type { ForcedFailover, ForcedKey } from '../../domain/failover.ts'
import type { Connection } from '../postgres/connection.ts'
import { isoTime } from './ownership-records.ts'

/** Newest first. */
export async function listForcedFailovers(
  connection: Connection,
  filter: { runId?: string; source?: string; limit: number },
): Promise<readonly ForcedFailover[]> {
  const found = await connection.query(
    'read',
    `select f.id, f.run_id, f.source, f.target, f.fence_check, e.observed, a.kind, a.bound_ms, a.actor as acknowledged_by, f.estimate_sha256, f.at,
      (extract(epoch from (clock_timestamp() - f.at)) * 1000)::bigint as age_ms, f.actor, (select jsonb_agg(jsonb_build_object('key', k.key, 'epoch', k.epoch, 'recoverable', k.recoverable,
        'unknown', jsonb_build_object('writes', k.unknown_writes, 'ms', k.unknown_ms),
        'lastApplied', case when k.applied_version is not null
          then jsonb_build_object('version', k.applied_version, 'ageMs', k.applied_age_ms) end) order by k.key)
        from homeregion_control.forced_activation k where k.forced_id = f.id) as keys
    from homeregion_control.forced_failover f
    join homeregion_control.evidence e on e.id = f.fence_evidence_id
    join homeregion_control.acknowledgement a on a.id = f.acknowledgement_id
    where ($1::text is null or f.run_id = $1) and ($2::text is null or f.source = $2)
    order by f.at desc, f.id limit $3`,
    [filter.runId ?? null, filter.source ?? null, filter.limit],
  )
  return found.rows.map(row => ({
    id: row.id as string,
    runId: row.run_id as string,
    source: row.source as string,
    target: row.target as string,
    fence: row.fence_check as OutsideFence,
    fenceObserved: row.observed as string,
    acknowledgement: {
      kind: row.kind as ForcedFailover['acknowledgement']['kind'],
      boundMs: Number(row.bound_ms) === -1 ? 'any' : Number(row.bound_ms),
      by: row.acknowledged_by as string,
    },
    estimateSha256: row.estimate_sha256 as string,
    at: isoTime(row.at),
    ageMs: Number(row.age_ms),
    by: row.actor as string,
    keys: (row.keys ?? []) as readonly ForcedKey[],
  }))
}
