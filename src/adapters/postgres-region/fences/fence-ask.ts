/**
 * One more wish for a fence, $1 to $6: region, name, kind, reason, by, run. The record keeps the newest; a run's never hides that of a person who
 * still wants it. `set` is what else changes where it stands already.
 */
export function askFence(set = ''): string {
  return `insert into homeregion.fence as f (region, name, kind, state, reason, applied_by, run_id)
values ($1, $2, $3, 'applying', $4, $5, $6)
on conflict (region, name) do update set ${set}asked = greatest(f.asked + 1, excluded.asked),
  (reason, applied_by, run_id) = (select w.reason, w.applied_by, w.run_id from (values
    (f.run_id is null and excluded.run_id is not null and f.state <> 'lifting', f.reason, f.applied_by, f.run_id),
    (true, excluded.reason, excluded.applied_by, excluded.run_id)) w(kept, reason, applied_by, run_id) where w.kept limit 1)`
}
