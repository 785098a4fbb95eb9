-- Ties the boundary to the control plane in the same database.

-- @ The record and the boundary change in one transaction, so they have to be in one database.
do $do$ begin
  if to_regclass('homeregion_control.ownership') is null then
    raise exception 'homeregion: topology shared needs the control plane in the same database, and it is not in %', quote_ident(current_database())
      using errcode = 'HR006';
  end if;
end $do$

-- @ The boundary reads the record, as its owner role.
grant usage on schema homeregion_control to homeregion_owner

-- @ The log holds the token of the change.
grant select on homeregion_control.ownership, homeregion_control.ownership_log to homeregion_owner

-- @ From here on every change of the record changes the boundary in the same commit, or neither changes.
create or replace trigger zzz_homeregion_authority after insert or update on homeregion_control.ownership
for each row execute function homeregion.follow_authority()

-- @ ALWAYS: also in sessions that set session_replication_role.
alter table homeregion_control.ownership enable always trigger zzz_homeregion_authority

-- @ As the owner of the boundary.
set local role homeregion_owner

-- @ Keys that were registered before the boundary stood. The trigger's lock is held, so none can be registered meanwhile.
select homeregion.take_over(null)

-- @ Back to the administrator.
reset role
