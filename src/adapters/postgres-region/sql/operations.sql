-- What an operator may do to a key in either topology, and what operations-<topology>.sql is built from, one autocommit statement each. Those all
-- refuse a smaller token (HR008) and an unexpected epoch or state (HR007), change nothing when the key is already where they lead, and make their
-- commit durable before it is told.

-- @ Settings of every change, for its transaction only: durable, bounded in waiting, and at READ COMMITTED, where each statement reads what
-- @ was committed before it.
create or replace function homeregion.begin_change() returns void language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'homeregion: ownership changes at READ COMMITTED only' using errcode = 'HR006';
  end if;
  perform set_config('synchronous_commit', 'on', true);
  perform set_config('lock_timeout', {{lock_timeout}}, true);
end $body$

-- @ The key's exclusive lock: granted when no transaction that wrote the key is open, prepared ones included. Bounded by lock_timeout (55P03),
-- @ short, because new writers queue behind a waiting exclusive lock.
create or replace function homeregion.lock_key(p_key text) returns void language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
  perform homeregion.begin_change();
  perform pg_advisory_xact_lock({{lock_space}}, hashtext(p_key collate "C"));
end $body$

-- @ Says what was expected of a key and what it is.
create or replace function homeregion.unexpected(p_key text, p_expected text) returns void language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
begin
  select * into o from homeregion.ownership where key = p_key;
  raise exception 'homeregion: key % is %, expected was %', quote_literal(p_key),
    coalesce(format('%s at %s, epoch %s', o.state, o.home_region, o.epoch), 'unknown here'), p_expected using errcode = 'HR007';
end $body$

-- @ Ownership of one key as this region knows it; no row when it never saw the key.
create or replace function homeregion.read(p_key text) returns setof homeregion.state
language sql stable security definer set search_path = pg_catalog, pg_temp as $body$
  select s.* from homeregion.state s where s.key = p_key
$body$

-- @ Transactions that wrote the key and are still open; no row only when the key's exclusive lock was really obtained. It asks without
-- @ queueing, so that other requests are not held up.
create or replace function homeregion.in_flight(p_key text, p_wait_ms integer)
returns table (pid integer, role text, application text, state text, age_ms bigint, gid text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  deadline timestamptz := clock_timestamp() + p_wait_ms * interval '1 millisecond';
  wrote boolean;
begin
  loop
    if pg_try_advisory_xact_lock({{lock_space}}, hashtext(p_key collate "C")) then return; end if;
    exit when clock_timestamp() >= deadline;
    perform pg_sleep(0.002);
  end loop;
  -- Requests that are being refused hold the lock for an instant and write nothing, but a stream of them can keep the lock from being free
  -- at the moment of asking. Then it is worth queueing once, shortly.
  select coalesce(bool_or(l.pid is null or a.backend_xid is not null or a.state <> 'active'), false) into wrote
  from homeregion.holders(p_key) l left join pg_stat_activity a on a.pid = l.pid;
  if not wrote then
    begin
      perform set_config('lock_timeout', '50ms', true);
      perform pg_advisory_xact_lock({{lock_space}}, hashtext(p_key collate "C"));
      return;
    exception when lock_not_available then null;
    end;
  end if;
  return query
  select h.pid, coalesce(p.owner, a.usename)::text, a.application_name::text,
         case when h.pid is null then 'prepared' else coalesce(a.state, 'unknown') end,
         (extract(epoch from clock_timestamp() - coalesce(p.prepared, a.xact_start)) * 1000)::bigint, p.gid::text
  from homeregion.holders(p_key) h
  left join pg_stat_activity a on a.pid = h.pid
  left join pg_prepared_xacts p on h.pid is null and p.transaction = h.prepared
  order by 5 desc nulls last;
  if not found then
    return query select null::integer, null::text, null::text, 'ended while being listed'::text, null::bigint, null::text;
  end if;
end $body$

-- @ Holders of the key's lock; `prepared` is the transaction id of a prepared one, whose lock has no process.
create or replace function homeregion.holders(p_key text) returns table (pid integer, prepared xid)
language sql volatile set search_path = pg_catalog, pg_temp as $body$
  select l.pid, t.transactionid
  from pg_locks l
  left join pg_locks t on l.pid is null and t.locktype = 'transactionid' and t.pid is null and t.virtualtransaction = l.virtualtransaction
  where l.locktype = 'advisory' and l.granted and l.pid is distinct from pg_backend_pid()
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and l.classid = {{lock_space}}::oid and l.objid = (hashtext(p_key collate "C")::bigint & 4294967295)::oid and l.objsubid = 2
$body$

-- @ Physical standbys of this primary, and whether their disks hold everything up to p_lsn (null: up to what this primary has flushed). Always a
-- @ row, whose name is null where there is none. Copies of the WAL that are no server (pg_receivewal, pg_basebackup) are left out; a standby that
-- @ is away is known by the slot that keeps WAL for it. What the owner may not see (no pg_read_all_stats) comes without a flush position.
create or replace function homeregion.standbys(p_lsn pg_lsn)
returns table (lsn text, name text, address text, state text, sync text, flush_lsn text, flushed boolean)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $body$
  with asked as (
    select coalesce(p_lsn, case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_flush_lsn() end) as lsn
  ), known as (
    select case when r.application_name is null or r.application_name = '' then format('pid %s', r.pid) else r.application_name end as name,
           host(r.client_addr) as address, coalesce(r.state, 'unseen') as state, r.sync_state as sync, r.flush_lsn
    from pg_stat_replication r
    left join pg_replication_slots s on s.active_pid = r.pid
    where s.slot_type is distinct from 'logical' and coalesce(r.state, 'unseen') not in ('startup', 'backup')
      and not (r.application_name in ('pg_receivewal', 'pg_basebackup') and r.replay_lsn is null)
    union all
    select s.slot_name::text, null, 'disconnected', null, s.restart_lsn
    from pg_replication_slots s
    where s.slot_type = 'physical' and not s.active and not s.temporary and s.restart_lsn is not null
  )
  select a.lsn::text, k.name, k.address, k.state, k.sync, k.flush_lsn::text, coalesce(k.state <> 'disconnected' and k.flush_lsn >= a.lsn, false)
  from asked a left join known k on true
  order by k.name
$body$

-- @ Writers of this key must present the current epoch in the setting homeregion.epoch, or need not.
create or replace function homeregion.require_epoch(p_key text, p_required boolean) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
  perform homeregion.begin_change();
  update homeregion.ownership set require_epoch = p_required where key = p_key;
  return query select s.* from homeregion.state s where s.key = p_key;
end $body$

-- @ Wakes whoever caches ownership at this region; informs, authorises nothing.
create or replace function homeregion.announce(p_key text) returns void language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
  perform pg_notify('homeregion_ownership', json_build_object('key', key, 'homeRegion', home_region, 'epoch', epoch, 'state', state)::text)
  from homeregion.ownership where key = p_key;
end $body$

-- @ Its columns grew: what an older boundary has under this name cannot be replaced in place.
do $do$ begin
  if exists (select from pg_proc p where p.oid = to_regprocedure('homeregion.rejections()') and not 'lease_over' = any (p.proargnames)) then
    drop function homeregion.rejections();
  end if;
end $do$

-- @ Refused writes by cause, since `since`.
create or replace function homeregion.rejections()
returns table (not_home bigint, draining bigint, fenced bigint, stale_epoch bigint, unknown_key bigint, truncate bigint, apply bigint, region_fenced bigint, lease_over bigint, since timestamptz)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $body$
  select (select case when is_called then last_value else 0 end from homeregion.refused_not_home),
         (select case when is_called then last_value else 0 end from homeregion.refused_draining),
         (select case when is_called then last_value else 0 end from homeregion.refused_fenced),
         (select case when is_called then last_value else 0 end from homeregion.refused_stale_epoch),
         (select case when is_called then last_value else 0 end from homeregion.refused_unknown_key),
         (select case when is_called then last_value else 0 end from homeregion.refused_truncate),
         (select case when is_called then last_value else 0 end from homeregion.refused_apply),
         (select case when is_called then last_value else 0 end from homeregion.refused_region_fenced),
         (select case when is_called then last_value else 0 end from homeregion.refused_lease_over),
         pg_postmaster_start_time()
$body$
