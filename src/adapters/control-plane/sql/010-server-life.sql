-- Version 10 of the control plane: a lease that is over proves something only where nobody but this server can have granted since; and a forced
-- failover names its proof that no region knows a move which the control plane has forgotten.

-- @ This server as long as it is the primary: a replica that takes over, or a backup that is rolled forward, counts another timeline. Null on a standby.
-- @ One name for ever where the store counts none: it has no second primary then. The installer's right, so that a grant needs no more than before.
do $do$
begin
  perform system_identifier, pg_walfile_name(pg_current_wal_lsn()) from pg_control_system();
  create function homeregion_control.server_life() returns text language sql security definer set search_path = pg_catalog as $$
    select case when not pg_is_in_recovery() then
      (select system_identifier from pg_control_system()) || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) end
  $$;
exception when undefined_function or feature_not_supported then
  create function homeregion_control.server_life() returns text language sql as $$ select 'one' $$;
end
$do$;

-- @ Of the server that made the last grant. Empty until the first one from now on: who made those before is not known.
alter table homeregion_control.region_lease add column life text not null default '';

-- @ The server that this one took over from may live on where nobody sees it, and grant: its last grant known here proves nothing.
create or replace function homeregion_control.forced_failover_lease() returns trigger language plpgsql as $$
begin
  perform 1 from homeregion_control.region_lease l where l.region = new.source for share;
  if not exists (
    select 1 from homeregion_control.region_lease l
    where l.region = new.source and l.withheld_by <> '' and l.generation > 0 and l.stops and l.over_at <= clock_timestamp()
      and l.life = homeregion_control.server_life()
  ) then
    raise exception using errcode = '{{lease_not_over}}', message = 'the lease of ' || new.source || ' is not over, is withheld by nobody, '
      || 'its boundary never said that it stops writes at the end, or another server of the control plane made the last grant';
  end if;
  return new;
end
$$;

-- @ Null where a forced failover was committed before this version: nobody had to ask the regions then.
alter table homeregion_control.forced_failover
  add column ahead_check text constraint forced_failover_ahead_check check (ahead_check = 'no-region-ahead'),
  add column ahead_evidence_id uuid,
  add constraint forced_failover_ahead foreign key (ahead_evidence_id, run_id, ahead_check, verdict, attempt_id, at)
    references homeregion_control.evidence (id, run_id, check_name, verdict, attempt_id, recorded_at),
  add constraint forced_failover_ahead_needed check (ahead_check is null or ahead_evidence_id is not null);

-- @ From now on they have to be asked: whoever inserts the row has no right to say otherwise.
alter table homeregion_control.forced_failover alter column ahead_check set default 'no-region-ahead';
