import type { RunLease } from '../../domain/journal.ts'
import { epochAfter, isolateTransition, STATES, transition } from '../../domain/ownership.ts'
import type { Statement } from '../postgres/connection.ts'
import { OWNERSHIP_COLUMNS } from './ownership-records.ts'
import { REFUSAL } from './refusals.ts'

/** One alternative a state; the names are those of the table of transitions. */
const ISOLATE = `case o.state ${STATES.map(state => `when '${state}' then '${isolateTransition(state)}'`).join(' ')} end`
const ISOLATED = transition('isolate').to
// 0 or 1: what the transition adds to the epoch.
const RAISES = epochAfter('activate-forced', 1) - 1

/**
 * The two rows that a forced failover writes for each of its keys, and the record that passes over both. From what stands now, not from what
 * the caller remembers: a key that is not where it was expected is missing in the count, and the whole is refused. The count comes first in the
 * join: behind it, nobody would count when no key moved at all.
 */
export function forceOwnership(forcedId: string, lease: RunLease, keys: number): Statement {
  return {
    sql: `with logged as (
  insert into homeregion_control.ownership_log (key, seq, transition, prev_seq, from_state, from_home, from_epoch, from_target, from_run,
    to_state, to_home, to_epoch, to_target, run_id, token, forced_id)
  select o.key, o.seq + step.nth, step.name, o.seq + step.nth - 1, step.from_state, o.home_region, o.epoch, step.from_target, step.from_run,
    step.to_state, step.to_home, step.to_epoch, step.to_target, $2::text, $3::bigint, f.forced_id
  from homeregion_control.forced_activation f join homeregion_control.ownership o on o.key = f.key
  cross join lateral (values
    (1, ${ISOLATE}, o.state, o.target_region, o.run_id, '${ISOLATED}', o.home_region, o.epoch, f.target),
    (2, 'activate-forced', '${ISOLATED}', f.target, $2::text, 'ACTIVE', f.target, o.epoch + ${RAISES}, '')
  ) as step(nth, name, from_state, from_target, from_run, to_state, to_home, to_epoch, to_target)
  where f.forced_id = $1 and o.seq = f.from_seq
  returning key, seq, transition, to_state, to_home, to_epoch, to_target, run_id, at, actor
), moved as (
  update homeregion_control.ownership o set seq = l.seq, state = l.to_state, home_region = l.to_home, epoch = l.to_epoch,
    target_region = l.to_target, run_id = l.run_id, changed_at = l.at, changed_by = l.actor
  from logged l where o.key = l.key and l.transition = 'activate-forced'
  returning ${OWNERSHIP_COLUMNS}
)
select o.* from (
  select homeregion_control.require((select count(*) from moved) = $4::bigint, '${REFUSAL.notForward}', 'a key is not where it was expected') as ok
) complete left join moved o on complete.ok`,
    parameters: [forcedId, lease.runId, lease.token, keys],
  }
}
