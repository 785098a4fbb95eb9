-- @ New partitions of guarded tables get the TRUNCATE guard when they are made; row triggers they inherit.
create or replace function homeregion.guard_partitions() returns event_trigger
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
  r regclass;
begin
  for r in
    with recursive touched as (
      select c.objid as oid from pg_event_trigger_ddl_commands() c where c.classid = 'pg_class'::regclass
      union select i.inhrelid from touched join pg_inherits i on i.inhparent = touched.oid
    ), tree as (
      select g.relation::oid as oid from homeregion.guarded g
      union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
    )
    select distinct tree.oid::regclass from tree join touched using (oid)
    where not exists (select from pg_trigger x where x.tgrelid = tree.oid and x.tgname = 'zzz_homeregion_truncate')
  loop
    execute format('create trigger zzz_homeregion_truncate before truncate on %s for each statement execute function homeregion.refuse_truncate()', r);
    execute format('alter table only %s enable always trigger zzz_homeregion_truncate', r);
  end loop;
end $body$
