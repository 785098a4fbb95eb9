-- The guard. No function here has a SET clause (it would cost more than the check), so every name AND operator is qualified, and
-- IS DISTINCT FROM, IN, NULLIF and CASE x WHEN are not used: they look "=" up by search_path.
--
-- Why it holds: a write takes the key's shared lock, kept to the end of its (prepared) transaction, and only THEN reads whether the key
-- is writable here, in a snapshot newer than the lock. A fence takes the same lock exclusively, so it waits for every write
-- admitted before it, and every later write reads what the fence committed. The functions stay VOLATILE: a STABLE one would read in the
-- snapshot of the statement.

-- @ Counts the refusal (the count survives the rollback), says why, and raises.
create or replace function homeregion.refuse(p_key text, p_presented text, p_applying boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
  code text;
  why text;
begin
  select * into o from homeregion.ownership where key = p_key;
  if o.key is null then
    code := 'HR003'; why := 'the key is not registered';
    perform nextval('homeregion.refused_unknown_key');
  elsif homeregion.local_region() is null then
    code := 'HR001'; why := format('the login %I belongs to no region', session_user);
    perform nextval('homeregion.refused_not_home');
  elsif p_applying and o.home_region = homeregion.local_region() then
    code := 'HR001'; why := format('its home is here (%s), and this session applies changes of other regions', o.home_region);
    perform nextval('homeregion.refused_apply');
  elsif o.home_region <> homeregion.local_region() then
    code := 'HR001'; why := format('its home is %s, this is %s', o.home_region, homeregion.local_region());
    perform nextval('homeregion.refused_not_home');
  elsif o.state = 'DRAINING' then
    code := 'HR001'; why := 'it is being drained';
    perform nextval('homeregion.refused_draining');
  elsif o.state <> 'ACTIVE' then
    code := 'HR001'; why := 'it is fenced';
    perform nextval('homeregion.refused_fenced');
  elsif homeregion.region_fenced(o.home_region) then
    code := 'HR009'; why := format('%s is fenced as a whole', o.home_region);
    perform nextval('homeregion.refused_region_fenced');
  else
    code := 'HR002';
    why := case when p_presented is null or p_presented = '' then format('the current epoch %s was not presented', o.epoch)
                else format('epoch %s was presented, the current one is %s', p_presented, o.epoch) end;
    perform nextval('homeregion.refused_stale_epoch');
  end if;
  raise exception 'homeregion: write to key % refused: %', coalesce(quote_literal(p_key), 'NULL'), why
    using errcode = code, schema = 'homeregion', constraint = 'homeregion_guard',
          detail = json_build_object('key', p_key, 'homeRegion', o.home_region, 'epoch', o.epoch, 'state', o.state,
                                     'localRegion', homeregion.local_region())::text;
end $body$

-- @ The whole check: takes the key's shared lock, then admits or raises. The triggers decide the common case themselves and come here
-- @ for everything else.
create or replace function homeregion.check_key(p_key text) returns void language plpgsql volatile as $body$
declare
  k pg_catalog.text collate pg_catalog."C" := p_key;
  presented pg_catalog.text := pg_catalog.current_setting('homeregion.epoch', true);
  frozen pg_catalog.bool := pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed';
  ep pg_catalog.int8;
  req pg_catalog.bool;
begin
  -- A NULL key takes no lock and is unknown.
  if pg_catalog.pg_advisory_xact_lock_shared({{lock_space}}, pg_catalog.hashtext(k)) is null then
    perform homeregion.refuse(null, presented, false);
  end if;
{{copies}}  if frozen then
    -- REPEATABLE READ and SERIALIZABLE read in the snapshot of their first statement, which may be older than a drain. Locking the row
    -- looks past it: a row that was deleted since gives 40001. The lock is let go at once by rolling the sub-transaction back, so
    -- that a drain never waits for such a transaction and hot keys gather no multixacts; the advisory lock, taken outside, stays.
    begin
      select w.epoch, w.require_epoch into ep, req from homeregion.writable w where w.key operator(pg_catalog.=) k{{and_here}} for share;
      raise exception using errcode = 'HR999';
    exception
      when sqlstate 'HR999' then null;
      when serialization_failure then
        perform pg_catalog.nextval('homeregion.refused_stale_epoch');
        raise;
    end;
  else
    select w.epoch, w.require_epoch into ep, req from homeregion.writable w where w.key operator(pg_catalog.=) k{{and_here}};
  end if;
  if ep is null and not frozen then
    -- A transaction that had begun to write before the drain may finish; it holds the shared lock, so the fence waits for it. A restart
    -- or a restored copy begins a new numbering of transactions, hence the second condition. Not where the whole region is fenced.
    select o.epoch, o.require_epoch into ep, req from homeregion.ownership o
    where o.key operator(pg_catalog.=) k
      and o.state operator(pg_catalog.=) 'DRAINING'
      and o.home_region operator(pg_catalog.=) homeregion.local_region()
      and o.drained_by operator(pg_catalog.>) pg_catalog.pg_current_xact_id_if_assigned()
      and o.drained_under operator(pg_catalog.=) pg_catalog.pg_postmaster_start_time()
      and not homeregion.region_fenced(o.home_region);
  end if;
{{heartbeat}}  if ep is null and homeregion.default_home() operator(pg_catalog.=) homeregion.local_region() then
    -- The first write of a key that nobody registered registers it, in the writer's own transaction. A frozen snapshot that does not see
    -- a row somebody else inserted gets 40001 here.
    insert into homeregion.ownership (key, home_region, epoch, state) values (k, homeregion.local_region(), 1, 'ACTIVE') on conflict do nothing;
    select w.epoch, w.require_epoch into ep, req from homeregion.writable w where w.key operator(pg_catalog.=) k{{and_here}};
  end if;
  if ep is null
     or not (case when presented is null or presented operator(pg_catalog.=) '' then not req
                  else presented operator(pg_catalog.=) ep::pg_catalog.text end) then
    perform homeregion.refuse(k, presented, false);
  end if;
{{lease}}end $body$

-- @ TRUNCATE takes away rows of every key at once, whatever their home.
create or replace function homeregion.refuse_truncate() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
  perform nextval('homeregion.refused_truncate');
  raise exception 'homeregion: TRUNCATE of the guarded table % refused', tg_relid::regclass using errcode = 'HR005', schema = 'homeregion';
end $body$

-- @ Keeps the boundary's own tables true: keys never change, epochs never fall, and what takes the right to write away for good needs the
-- @ key's exclusive lock, held by nobody who has a write in flight. Derives `writable`, and keeps it empty while the whole region is fenced.
create or replace function homeregion.ownership_changes() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  was_open boolean := tg_op <> 'INSERT' and {{old_home_here}} and old.state in ('ACTIVE', 'DRAINING');
  stays_open boolean := tg_op = 'UPDATE' and {{new_home_stays}} and new.state in ('ACTIVE', 'DRAINING') and new.epoch = old.epoch;
  opens boolean := tg_op <> 'DELETE' and {{new_home_here}} and new.state = 'ACTIVE';
  -- Already what it should be, or swept away by a fence of the region, whose lift brings it back.
  stays boolean := tg_op = 'UPDATE' and opens and stays_open and {{old_home_here}} and old.state = 'ACTIVE' and new.require_epoch = old.require_epoch;
begin
  if tg_op = 'UPDATE' and (new.key <> old.key or new.epoch < old.epoch or new.token < old.token) then
    raise exception 'homeregion: the key is immutable, and neither epoch nor token may fall' using errcode = 'HR006';
  end if;
  if was_open and not stays_open and not exists (
    select from pg_locks
    where locktype = 'advisory' and pid = pg_backend_pid() and granted and mode = 'ExclusiveLock'
      and database = (select d.oid from pg_database d where d.datname = current_database())
      and classid = {{lock_space}}::oid and objid = (hashtext(old.key collate "C")::bigint & 4294967295)::oid and objsubid = 2
  ) then
    raise exception 'homeregion: ownership of % changed without its exclusive lock; use the functions of schema homeregion', quote_literal(old.key)
      using errcode = 'HR006';
  end if;
  if tg_op <> 'INSERT' and not (opens and new.epoch = old.epoch and new.require_epoch = old.require_epoch) then
    delete from homeregion.writable where key = old.key;
  end if;
  if opens and not stays then
    -- First the lock, then the look: an opening that did not see the region's fence is seen by the fence.
    perform pg_advisory_xact_lock_shared({{opening_space}}, hashtext(new.home_region collate "C"));
    if not homeregion.region_closed(new.home_region) then
      insert into homeregion.writable (key, epoch, require_epoch{{home_column}}) values (new.key, new.epoch, new.require_epoch{{home_value}}) on conflict (key) do nothing;
    end if;
  end if;
  return null;
end $body$

-- @ Every change of ownership passes it, replication included.
create or replace trigger zzz_homeregion_ownership after insert or update or delete on homeregion.ownership
for each row execute function homeregion.ownership_changes()

-- @ ALWAYS: also in sessions that set session_replication_role.
alter table homeregion.ownership enable always trigger zzz_homeregion_ownership

-- @ Ownership cannot be emptied.
create or replace trigger zzz_homeregion_truncate before truncate on homeregion.ownership
for each statement execute function homeregion.refuse_truncate()

-- @ ALWAYS, as above.
alter table homeregion.ownership enable always trigger zzz_homeregion_truncate

-- @ Lets a bulk-loaded table be probed without a row: an INSERT of no rows, with the key in the setting homeregion.probe, is checked like a
-- @ write of that key. The setting can only add a check.
create or replace function homeregion.probe() returns trigger language plpgsql volatile security definer as $body$
begin
  if pg_catalog.current_setting('homeregion.probe', true) operator(pg_catalog.<>) '' then
    perform homeregion.check_key(pg_catalog.current_setting('homeregion.probe', true));
  end if;
  return null;
end $body$
