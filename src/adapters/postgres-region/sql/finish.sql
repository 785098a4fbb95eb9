-- @ Takes the guard off tables that are no longer configured.
do $do$
declare
  x record;
begin
  delete from homeregion.guarded where relation::oid <> all ({{relations}}::regclass[]::oid[]);
  for x in
    with recursive tree as (
      select g.relation::oid as oid from homeregion.guarded g union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
    )
    select t.tgrelid::regclass as relation, t.tgname from pg_trigger t
    where t.tgname like 'zzz\_homeregion\_%' and t.tgparentid = 0 and t.tgrelid not in (select oid from tree)
      and t.tgrelid <> 'homeregion.ownership'::regclass and t.tgname <> 'zzz_homeregion_authority'
  loop
    execute format('drop trigger %I on %s', x.tgname, x.relation);
  end loop;
end $do$

-- @ Makes new partitions guarded by themselves. Only a superuser may; without it, run init again after adding a partition (doctor says when).
do $do$ begin
  if (select rolsuper from pg_roles where rolname = current_user) then
    if not exists (select from pg_event_trigger where evtname = 'homeregion_partitions') then
      create event trigger homeregion_partitions on ddl_command_end when tag in ('CREATE TABLE', 'ALTER TABLE') execute function homeregion.guard_partitions();
    end if;
    alter event trigger homeregion_partitions enable always;
  end if;
end $do$

-- @ The operator reads what proofs are made of.
do $do$
declare
  r regclass;
  o name;
begin
  foreach o in array {{operators}}::name[] loop
    foreach r in array {{observed}}::regclass[] loop
      execute format('grant usage on schema %I to %I', (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = r), o);
      execute format('grant select on %s to %I', r, o);
    end loop;
  end loop;
end $do$

-- @ Back to the owner for the boundary's own privileges.
set local role homeregion_owner

-- @ Nothing of the boundary is open by default.
revoke all on all functions in schema homeregion from public

-- @ Names are no secret; their tables and functions have their own privileges.
grant usage on schema homeregion to public

-- @ Whoever makes a partition needs to be able to name the guard; a trigger function cannot be called.
do $do$
declare
  f regprocedure;
begin
  for f in
    select p.oid::regprocedure from pg_proc p
    where p.pronamespace = 'homeregion'::regnamespace and p.prorettype in ('trigger'::regtype, 'event_trigger'::regtype) and p.proname not in ('ownership_changes', 'follow_authority', 'key_left')
  loop
    execute format('grant execute on function %s to public', f);
  end loop;
end $do$

-- @ Read by the function that guards new partitions, which runs as whoever makes one.
grant select on homeregion.guarded to public

-- @ The operator moves ownership by these functions alone; it cannot write the boundary's tables.
do $do$
declare
  o name;
begin
  foreach o in array {{operators}}::name[] loop
    execute format('grant execute on function homeregion.read(text), homeregion.claim(text, text, bigint, bigint), homeregion.drain(text, bigint, bigint),
      homeregion.in_flight(text, integer), homeregion.fence(text, bigint, bigint, text), homeregion.open(text, bigint, bigint),
      homeregion.follow(text, text, bigint, bigint), homeregion.register(text[], text[], bigint[]), homeregion.require_epoch(text, boolean),
      homeregion.rejections(), homeregion.standbys(pg_lsn), homeregion.local_region(), homeregion.default_home() to %I', o);
    execute format('grant select on {{readable}} to %I', o);
  end loop;
end $do$

-- @ The login that fences the region keeps what it changed on record.
do $do$
declare
  f name;
begin
  foreach f in array {{fencers}}::name[] loop
    execute format('grant select, insert, update, delete on homeregion.fence, homeregion.fence_item to %I', f);
  end loop;
end $do$

-- @ The login that brings the region's rows level says so here, in the same commit.
do $do$
declare
  l name;
begin
  foreach l in array {{levellers}}::name[] loop
    execute format('grant select, insert, update on homeregion.levelled to %I', l);
  end loop;
end $do$

-- @ Writers and replication consumers may ask where a key's home is.
do $do$
declare
  w name;
begin
  foreach w in array {{readers}}::name[] loop
    execute format('grant execute on function homeregion.read(text), homeregion.local_region() to %I', w);
  end loop;
end $do$

-- @ What was installed.
insert into homeregion.installed (region, version, config_hash) values ({{region}}, {{version}}, {{config_hash}})
on conflict (only_row) do update set version = excluded.version, config_hash = excluded.config_hash, installed_at = clock_timestamp()

-- @ Back to the administrator.
reset role

-- @ Takes the temporary membership back.
do $do$ begin
  if not (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then
    execute pg_catalog.format('revoke homeregion_owner from %I', current_user);
    execute pg_catalog.format('revoke create on database %I from homeregion_owner', pg_catalog.current_database());
  end if;
end $do$
