import type { RunLease } from '../../domain/journal.ts'
import type { Statement } from '../postgres/connection.ts'
import { storableJson } from './storable-json.ts'

/**
 * The runs that hold the keys, locked before anything of theirs is touched: a journal commit of theirs begins with the same lock, so the two
 * take turns instead of waiting for each other.
 */
export function lockSeized(lease: RunLease, keys: readonly string[]): Statement {
  return {
    sql: `select r.id from homeregion_control.run r where r.id in (
  select k.run_id from homeregion_control.run_key k
  where k.open and k.run_id <> $1 and k.key in (select m.key from jsonb_to_recordset($2::jsonb) as m(key text))
) order by r.id for update`,
    parameters: [lease.runId, storableJson(keys.map(key => ({ key })))],
  }
}

/**
 * Takes the keys from the runs that hold them. A run with nothing left to settle is closed; one that keeps a key in the middle of its move
 * stays open for a person, since nobody else could end it.
 */
export function seizeKeys(forcedId: string, lease: RunLease): readonly Statement[] {
  return [
    {
      sql: `update homeregion_control.run_key k set hold = 'seized', seized_by = $1, outcome = coalesce(k.outcome, 'not-moved')
from homeregion_control.forced_activation f where f.forced_id = $1 and f.key = k.key and k.open and k.hold <> 'seized' and k.run_id <> $2`,
      parameters: [forcedId, lease.runId],
    },
    {
      sql: `update homeregion_control.run_key k set hold = 'held' where k.run_id = $1 and k.hold = 'seizing'`,
      parameters: [lease.runId],
    },
    {
      sql: `with seized as materialized (
  select s.run_id, ${UNSETTLED} as unsettled
  from (select distinct k.run_id from homeregion_control.run_key k where k.seized_by = $1) s
), ended as (
  update homeregion_control.run_key k set outcome = 'not-moved' from seized s
  where k.run_id = s.run_id and not s.unsettled and k.outcome is null and k.hold = 'held'
  returning k.key
)
select s.run_id, s.unsettled, (select count(*) from ended) as ended from seized s`,
      parameters: [forcedId],
    },
    {
      sql: `with seized as materialized (
  select s.run_id, ${UNSETTLED} as unsettled
  from (select distinct k.run_id from homeregion_control.run_key k where k.seized_by = $1) s
)
update homeregion_control.run r set state = case when s.unsettled then 'NEEDS_HUMAN' else 'SEIZED' end, open = s.unsettled,
  ended_at = case when not s.unsettled then now() end, lease_until = case when s.unsettled then now() end,
  holder_host = case when s.unsettled then r.holder_host end, holder_pid = case when s.unsettled then r.holder_pid end,
  holder_user = case when s.unsettled then r.holder_user end
from seized s where r.id = s.run_id and r.open`,
      parameters: [forcedId],
    },
  ]
}

/** A key of the run `s` that nobody took and that is on its way. */
const UNSETTLED = `exists (select 1 from homeregion_control.run_key u join homeregion_control.ownership o on o.key = u.key
    where u.run_id = s.run_id and u.hold = 'held' and o.state <> 'ACTIVE')`
