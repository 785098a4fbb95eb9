-- The boundary as a fence of the whole region: while its row of homeregion.fence stands, `writable` holds none of the region's keys, and the guard
-- refuses them all without a single instruction more in its common case.
--
-- Why it holds: a writer takes its shared lock first and reads `writable` afterwards, so whoever was admitted before the fence's commit shows in
-- pg_locks in a look taken after it (homeregion.region_in_flight). The same goes for whoever makes a key writable: it takes the region's opening
-- lock first and reads whether the fence stands afterwards. What such an opening commits after the fence is swept away by settle_region.
--
-- Locks of a region: the opening lock is only ever shared, and waited for by looking, since a first write of an idle transaction may hold
-- it for long. The gate is exclusive while the fence is put up, settled or lifted, and shared by who finds it standing, so that no opening falls between a
-- lift's commit and what that lift had read.

-- @ Refused because the whole region is fenced.
create sequence if not exists homeregion.refused_region_fenced

-- @ Whether the region's fence stands, in the caller's snapshot.
create or replace function homeregion.region_fenced(p_region text) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $body$
  select exists (select from homeregion.fence f where f.region = p_region and f.name = 'boundary')
$body$

-- @ The same, for whoever is about to make a key writable and holds the opening lock. While it answers true, the fence cannot be lifted before
-- @ the caller's transaction has ended. A frozen snapshot that is older than the fence, or than its lift, gets 40001.
create or replace function homeregion.region_closed(p_region text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $body$
declare
  frozen boolean := current_setting('transaction_isolation') <> 'read committed';
begin
  begin
    -- ON CONFLICT looks past a frozen snapshot, and refuses a row that the snapshot does not show. Rolled back at once in any case.
    if frozen then
      insert into homeregion.fence (region, name, kind, state, reason, applied_by)
      values (p_region, 'boundary', 'boundary', 'applying', '', '') on conflict do nothing;
      raise exception using errcode = 'HR999';
    end if;
  exception
    when sqlstate 'HR999' then null;
    when serialization_failure then
      perform nextval('homeregion.refused_stale_epoch');
      raise;
  end;
  if not homeregion.region_fenced(p_region) then return false; end if;
  perform pg_advisory_xact_lock_shared({{gate_space}}, hashtext(p_region collate "C"));
  begin
    if frozen then
      perform 1 from homeregion.fence f where f.region = p_region and f.name = 'boundary' for share;
      raise exception using errcode = 'HR999';
    end if;
  exception
    when sqlstate 'HR999' then return true;
    when serialization_failure then
      perform nextval('homeregion.refused_stale_epoch');
      raise;
  end;
  return homeregion.region_fenced(p_region);
end $body$

-- @ Refuses to open a key in a region that is fenced as a whole.
create or replace function homeregion.refuse_opening(p_key text, p_region text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
  since timestamptz := (select f.since from homeregion.fence f where f.region = p_region and f.name = 'boundary');
begin
  raise exception 'homeregion: key % was not opened: % is fenced as a whole since %', quote_literal(p_key), p_region, since
    using errcode = 'HR009', schema = 'homeregion';
end $body$

-- @ Settings and lock of every change of a region's fence.
create or replace function homeregion.begin_region_change(p_region text, p_name text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
  if p_name is distinct from 'boundary' then
    raise exception 'homeregion: the boundary''s fence of a region is named boundary, not %', p_name using errcode = 'HR006';
  end if;
  if ({{region_known}}) is not true then
    raise exception 'homeregion: this database belongs to %, not to %', homeregion.local_region(), p_region using errcode = 'HR006';
  end if;
  perform homeregion.begin_change();
  perform pg_advisory_xact_lock({{gate_space}}, hashtext(p_region collate "C"));
end $body$

-- @ Takes every key of the region out of `writable`; returns how many there were.
create or replace function homeregion.sweep_region(p_region text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
  swept bigint;
begin
  delete from homeregion.writable w{{of_region}};
  get diagnostics swept = row_count;
  return swept;
end $body$

-- @ From its commit on no key may be written in the region. Waits for nobody's transaction: who wrote before is found by
-- @ homeregion.region_in_flight. Asked again, it keeps the newest wish; a run's never hides a person's.
create or replace function homeregion.fence_region(p_region text, p_name text, p_reason text, p_by text, p_run text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  swept bigint;
begin
  perform homeregion.begin_region_change(p_region, p_name);
  insert into homeregion.fence as f (region, name, kind, state, reason, applied_by, run_id)
  values (p_region, p_name, 'boundary', 'applying', p_reason, p_by, p_run)
  on conflict (region, name) do update set asked = greatest(f.asked + 1, excluded.asked),
    (reason, applied_by, run_id) = (select w.reason, w.applied_by, w.run_id from (values
      (f.run_id is null and excluded.run_id is not null and f.state <> 'lifting', f.reason, f.applied_by, f.run_id),
      (true, excluded.reason, excluded.applied_by, excluded.run_id)) w(kept, reason, applied_by, run_id) where w.kept limit 1);
  swept := homeregion.sweep_region(p_region);
  if swept > 0 then update homeregion.fence set state = 'applying' where region = p_region and name = p_name; end if;
  return swept;
end $body$

-- @ Asked once everybody in flight has ended: the fence is applied when nothing was made writable by those. Else it returns how many keys it
-- @ swept, and who wrote those has to be waited for in turn.
create or replace function homeregion.settle_region(p_region text, p_name text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  swept bigint;
begin
  perform homeregion.begin_region_change(p_region, p_name);
  if not homeregion.region_fenced(p_region) then
    raise exception 'homeregion: % is not fenced as a whole', p_region using errcode = 'HR007';
  end if;
  swept := homeregion.sweep_region(p_region);
  update homeregion.fence set state = case when swept = 0 then 'applied' else 'applying' end where region = p_region and name = p_name;
  return swept;
end $body$

-- @ Lifted without saying for which wish, it could end an emergency that nobody allowed to be ended.
drop function if exists homeregion.lift_region(text, text)

-- @ Lifts the fence: writable is what ownership says, no key more. Returns how many keys it made writable; null, and nothing is lifted, when
-- @ it stands for another wish than the one that p_asked names.
create or replace function homeregion.lift_region(p_region text, p_name text, p_asked bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  opened bigint;
begin
  perform homeregion.begin_region_change(p_region, p_name);
  if exists (select from homeregion.fence f where f.region = p_region and f.name = p_name and f.asked is distinct from p_asked) then
    return null;
  end if;
  delete from homeregion.fence where region = p_region and name = p_name;
  -- Locked, in one order: a drain that is committed meanwhile is seen, and one that comes later finds the row it has to take away.
  with home as materialized (
    select o.key, o.epoch, o.require_epoch, o.home_region from homeregion.ownership o
    where o.home_region = p_region and o.state = 'ACTIVE' order by o.key for share
  )
  insert into homeregion.writable (key, epoch, require_epoch{{home_column}})
  select h.key, h.epoch, h.require_epoch{{home_of_h}} from home h on conflict (key) do nothing;
  get diagnostics opened = row_count;
  return opened;
end $body$

-- @ How many of the region's keys the guard admits.
create or replace function homeregion.writable_keys(p_region text) returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $body$
  select count(*) from homeregion.writable w{{of_region}}
$body$

-- @ Who holds a lock that the fence has to wait for: of a key at home here (a writer), or the opening lock. A lock shows its key's hash only; another
-- @ key of the same hash costs a wait. A key leaves for another home under its exclusive lock, so no writer of it is overlooked.
create or replace function homeregion.region_holders(p_region text) returns table (vxid text, pid integer, prepared xid)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $body$
begin
  return query
  with held as materialized (
    select l.virtualtransaction, l.pid, l.classid, l.objid from pg_locks l
    where l.locktype = 'advisory' and l.granted and l.mode = 'ShareLock' and l.objsubid = 2 and l.pid is distinct from pg_backend_pid()
      and l.classid in ({{lock_space}}::oid, {{opening_space}}::oid)
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
  ), ours as (
    select distinct h.virtualtransaction, h.pid from held h
    where case when h.classid = {{opening_space}}::oid then h.objid = (hashtext(p_region collate "C")::bigint & 4294967295)::oid
               else h.objid in (select (hashtext(o.key)::bigint & 4294967295)::oid from homeregion.ownership o where o.home_region = p_region) end
  )
  select o.virtualtransaction, o.pid, t.transactionid
  from ours o
  left join pg_locks t on o.pid is null and t.locktype = 'transactionid' and t.pid is null and t.virtualtransaction = o.virtualtransaction;
end $body$

-- @ Transactions that were admitted before this look, or made a key writable, and have not ended after p_wait_ms. Called after the fence's commit
-- @ returned, no row means that nothing admitted before it can still commit. Sessions whose transaction was aborted as a whole hold no lock; one that
-- @ was aborted inside a savepoint can go back to it and commit, and is listed.
create or replace function homeregion.region_in_flight(p_region text, p_wait_ms integer)
returns table (pid integer, role text, application text, state text, age_ms bigint, gid text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $body$
declare
  deadline timestamptz := clock_timestamp() + p_wait_ms * interval '1 millisecond';
  among text[] := array(select h.vxid from homeregion.region_holders(p_region) h);
begin
  while cardinality(among) > 0 and clock_timestamp() < deadline loop
    perform pg_sleep(0.005);
    among := array(select distinct l.virtualtransaction from pg_locks l
      where l.virtualtransaction = any (among) and l.locktype = 'advisory' and l.granted and l.mode = 'ShareLock' and l.objsubid = 2
        and l.classid in ({{lock_space}}::oid, {{opening_space}}::oid));
  end loop;
  if cardinality(among) = 0 then return; end if;
  return query
  select h.pid, coalesce(p.owner, a.usename)::text, a.application_name::text,
         case when h.pid is null then 'prepared' else coalesce(a.state, 'unknown') end,
         (extract(epoch from clock_timestamp() - coalesce(p.prepared, a.xact_start)) * 1000)::bigint, p.gid::text
  from homeregion.region_holders(p_region) h
  left join pg_stat_activity a on a.pid = h.pid
  left join pg_prepared_xacts p on h.pid is null and p.transaction = h.prepared
  where h.vxid = any (among)
  order by 5 desc nulls last;
end $body$

-- @ The operator and the login that fences call these alone.
do $do$
declare
  o name;
begin
  foreach o in array {{callers}}::name[] loop
    execute format('grant execute on function homeregion.fence_region(text, text, text, text, text), homeregion.settle_region(text, text),
      homeregion.lift_region(text, text, bigint), homeregion.region_in_flight(text, integer), homeregion.writable_keys(text) to %I', o);
  end loop;
end $do$
