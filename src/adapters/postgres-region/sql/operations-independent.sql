-- Changes of one region's own copy of ownership: the operator brings them here, after the control plane has recorded them.

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
  -- Before any lock of the key: a lift takes the gate first, too.
  if homeregion.region_closed(here) then perform homeregion.refuse_opening(p_key, here); end if;
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
  -- Fenced meanwhile: told as opened it would be a home where nobody can write.
  if homeregion.region_fenced(here) then perform homeregion.refuse_opening(p_key, here); end if;
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
