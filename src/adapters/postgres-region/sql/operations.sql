-- What the operator may do to a key, one autocommit statement each. All refuse a smaller token (HR008) and an unexpected epoch or state
-- (HR007), and change nothing when the key is already where they lead. All make their commit durable before it is told.

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

-- @ The key's row, locked, after a superseded caller was sent away. `p_epoch` null: any epoch.
create or replace function homeregion.own(p_key text, p_epoch bigint, p_token bigint) returns homeregion.ownership
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
begin
  select * into o from homeregion.ownership where key = p_key for no key update;
  if p_token < o.token then
    raise exception 'homeregion: token % for key % is superseded by %', p_token, quote_literal(p_key), o.token using errcode = 'HR008';
  end if;
  if p_epoch is not null and (o.key is null or o.epoch <> p_epoch or o.home_region <> homeregion.local_region()) then
    perform homeregion.unexpected(p_key, format('%s at epoch %s', homeregion.local_region(), p_epoch));
  end if;
  return o;
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

-- @ Raises the key's token. A key this region never saw gets its row: not writable here, unless it was already, by the default home.
create or replace function homeregion.claim(p_key text, p_home text, p_epoch bigint, p_token bigint) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
  perform homeregion.begin_change();
  insert into homeregion.ownership (key, home_region, epoch, state, token)
  values (p_key, p_home, p_epoch,
          -- DRAINING: no write is admitted, and both ways lead on from it (resume, fence).
          case when p_home = homeregion.local_region() and p_home is distinct from homeregion.default_home() then 'DRAINING' else 'ACTIVE' end,
          p_token)
  on conflict (key) do nothing;
  perform homeregion.own(p_key, null, p_token);
  update homeregion.ownership set token = p_token where key = p_key and token < p_token;
  return query select s.* from homeregion.state s where s.key = p_key;
end $body$

-- @ ACTIVE -> DRAINING: from its commit on no new write is admitted. It waits for nobody, so an idle transaction cannot stall the others:
-- @ safe, because writes admitted before hold the key's shared lock and FENCED is entered only under the exclusive one.
create or replace function homeregion.drain(p_key text, p_epoch bigint, p_token bigint) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
begin
  perform homeregion.begin_change();
  o := homeregion.own(p_key, p_epoch, p_token);
  if o.state = 'ACTIVE' then
    update homeregion.ownership
    set state = 'DRAINING', token = p_token, barrier_event_id = null, changed_at = clock_timestamp(),
        drained_by = pg_current_xact_id(), drained_under = pg_postmaster_start_time()
    where key = p_key;
    perform homeregion.announce(p_key);
  elsif o.state = 'DRAINING' then
    update homeregion.ownership set token = p_token where key = p_key and token < p_token;
  else
    perform homeregion.unexpected(p_key, 'ACTIVE or DRAINING');
  end if;
  return query select s.* from homeregion.state s where s.key = p_key;
end $body$

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

-- @ First half of the fence: the lock, the checks, and the key made writable for this transaction alone. False when it is fenced already.
create or replace function homeregion.fence_begin(p_key text, p_epoch bigint, p_token bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
begin
  perform homeregion.lock_key(p_key);
  o := homeregion.own(p_key, p_epoch, p_token);
  if o.state = 'FENCED' then
    update homeregion.ownership set token = p_token where key = p_key and token < p_token;
    return false;
  end if;
  if o.state <> 'DRAINING' then perform homeregion.unexpected(p_key, 'DRAINING or FENCED'); end if;
  -- The barrier passes the guard like any write: the key is writable inside this transaction only, under the exclusive lock.
  insert into homeregion.writable (key, epoch, require_epoch) values (p_key, p_epoch, false) on conflict (key) do nothing;
  perform set_config('homeregion.epoch', p_epoch::text, true);
  return true;
end $body$

-- @ Second half: FENCED, with its barrier. The trigger takes the writable row away.
create or replace function homeregion.fence_end(p_key text, p_token bigint, p_barrier text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
  update homeregion.ownership
  set state = 'FENCED', token = p_token, barrier_event_id = p_barrier, drained_by = null, drained_under = null, changed_at = clock_timestamp()
  where key = p_key;
  delete from homeregion.writable where key = p_key;
  perform homeregion.announce(p_key);
  perform pg_notify('homeregion_outbox', p_key);
end $body$

-- @ DRAINING -> FENCED under the exclusive lock, and in the same transaction the barrier event through the outbox. No SET clause: the outbox may
-- @ have triggers of the service that rely on the session's search_path.
create or replace function homeregion.fence(p_key text, p_epoch bigint, p_token bigint, p_barrier text) returns setof homeregion.state
language plpgsql volatile security definer as $body$
begin
  if homeregion.fence_begin(p_key, p_epoch, p_token) then
    insert into {{outbox}} ({{columns}})
    select {{values}}
    from pg_catalog.jsonb_populate_record(null::{{outbox}}, pg_catalog.jsonb_build_object({{fields}})) r;
    perform homeregion.fence_end(p_key, p_token, p_barrier);
  end if;
  return query select s.* from homeregion.read(p_key) s;
end $body$

-- @ Makes this region the writable home at `epoch`: a later one than the boundary knows, or the same one when only a drain is undone.
create or replace function homeregion.open(p_key text, p_epoch bigint, p_token bigint) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
  here text := homeregion.local_region();
  stayed boolean;
begin
  perform homeregion.begin_change();
  -- A key that was only drained never left, so no foreign copy is under way, and the writer that kept it from draining may still be open:
  -- giving it back must not wait for that one. A fence that comes first is seen under the row's lock, and refuses this.
  select s.epoch = p_epoch and s.home_region = here and s.state in ('DRAINING', 'ACTIVE') into stayed from homeregion.ownership s where s.key = p_key;
  -- Otherwise exclusive: a copy of a foreign change that is still being applied ends before the first own write.
  if stayed is not true then perform homeregion.lock_key(p_key); end if;
  o := homeregion.own(p_key, null, p_token);
  if o.key is null then
    insert into homeregion.ownership (key, home_region, epoch, state, token) values (p_key, here, p_epoch, 'ACTIVE', p_token);
  elsif o.epoch < p_epoch or (o.epoch = p_epoch and o.home_region = here and o.state = 'DRAINING') then
    update homeregion.ownership
    set home_region = here, epoch = p_epoch, state = 'ACTIVE', token = p_token, barrier_event_id = null, drained_by = null,
        drained_under = null, changed_at = clock_timestamp()
    where key = p_key;
  elsif o.epoch = p_epoch and o.home_region = here and o.state = 'ACTIVE' then
    update homeregion.ownership set token = p_token where key = p_key and token < p_token;
  else
    perform homeregion.unexpected(p_key, format('an epoch below %s, or DRAINING at it', p_epoch));
  end if;
  perform homeregion.announce(p_key);
  return query select s.* from homeregion.state s where s.key = p_key;
end $body$

-- @ Records that another region is home. Never makes the key writable here, and never goes back to an older epoch.
create or replace function homeregion.follow(p_key text, p_home text, p_epoch bigint, p_token bigint) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
begin
  if p_home = homeregion.local_region() then raise exception 'homeregion: a region cannot follow itself' using errcode = 'HR006'; end if;
  perform homeregion.lock_key(p_key);
  o := homeregion.own(p_key, null, p_token);
  if o.key is null then
    insert into homeregion.ownership (key, home_region, epoch, state, token) values (p_key, p_home, p_epoch, 'ACTIVE', p_token);
  elsif o.epoch < p_epoch or (o.epoch = p_epoch and o.home_region = p_home) then
    update homeregion.ownership
    set home_region = p_home, epoch = p_epoch, state = 'ACTIVE', token = p_token, barrier_event_id = null, drained_by = null,
        drained_under = null, changed_at = case when o.epoch = p_epoch then o.changed_at else clock_timestamp() end
    where key = p_key;
  else
    perform homeregion.unexpected(p_key, format('an epoch below %s, or home %s', p_epoch, p_home));
  end if;
  perform homeregion.announce(p_key);
  return query select s.* from homeregion.state s where s.key = p_key;
end $body$

-- @ Registers keys that the control plane holds as ACTIVE: writable at their home, copies elsewhere. Keys known here stay as they are.
create or replace function homeregion.register(p_keys text[], p_homes text[], p_epochs bigint[]) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
  perform homeregion.begin_change();
  insert into homeregion.ownership (key, home_region, epoch, state)
  -- In one order, so that two registrations cannot wait for each other.
  select k.key, k.home, k.epoch, 'ACTIVE' from unnest(p_keys, p_homes, p_epochs) as k(key, home, epoch) order by k.key collate "C"
  on conflict (key) do nothing;
  return query select s.* from homeregion.state s where s.key = any (p_keys);
end $body$

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

-- @ Refused writes by cause, since `since`.
create or replace function homeregion.rejections()
returns table (not_home bigint, draining bigint, fenced bigint, stale_epoch bigint, unknown_key bigint, truncate bigint, apply bigint, since timestamptz)
language sql volatile security definer set search_path = pg_catalog, pg_temp as $body$
  select (select case when is_called then last_value else 0 end from homeregion.refused_not_home),
         (select case when is_called then last_value else 0 end from homeregion.refused_draining),
         (select case when is_called then last_value else 0 end from homeregion.refused_fenced),
         (select case when is_called then last_value else 0 end from homeregion.refused_stale_epoch),
         (select case when is_called then last_value else 0 end from homeregion.refused_unknown_key),
         (select case when is_called then last_value else 0 end from homeregion.refused_truncate),
         (select case when is_called then last_value else 0 end from homeregion.refused_apply),
         pg_postmaster_start_time()
$body$
