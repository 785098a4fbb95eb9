-- The boundary of a database that all regions and the control plane share. Ownership follows the control plane's record in the control plane's own
-- transaction, so the operator's functions find it done: they check it, and keep superseded callers away. Only the fence is a change of its own,
-- because it alone takes the key's exclusive lock; the record may say FENCED only afterwards.

-- @ The key's row, locked, after a superseded caller was sent away. `p_epoch` null: any epoch.
create or replace function homeregion.own(p_key text, p_epoch bigint, p_token bigint) returns homeregion.ownership
language plpgsql set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
begin
  select * into o from homeregion.ownership where key = p_key for no key update;
  if o.key is null then perform homeregion.unexpected(p_key, 'registered in the control plane'); end if;
  if p_token < o.token then
    raise exception 'homeregion: token % for key % is superseded by %', p_token, quote_literal(p_key), o.token using errcode = 'HR008';
  end if;
  if p_epoch is not null and o.epoch <> p_epoch then perform homeregion.unexpected(p_key, format('epoch %s', p_epoch)); end if;
  update homeregion.ownership set token = p_token where key = p_key and token < p_token;
  return o;
end $body$

-- @ Raises the key's token. Who its home is says the control plane, not the caller.
create or replace function homeregion.claim(p_key text, p_home text, p_epoch bigint, p_token bigint) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
  perform homeregion.begin_change();
  perform homeregion.own(p_key, null, p_token);
  return query select s.* from homeregion.state s where s.key = p_key;
end $body$

-- @ The record says DRAINING, and so no new write is admitted: checked.
create or replace function homeregion.drain(p_key text, p_epoch bigint, p_token bigint) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
begin
  perform homeregion.begin_change();
  o := homeregion.own(p_key, p_epoch, p_token);
  if o.state <> 'DRAINING' then perform homeregion.unexpected(p_key, 'DRAINING'); end if;
  return query select s.* from homeregion.state s where s.key = p_key;
end $body$

-- @ DRAINING -> FENCED under the exclusive lock. No barrier event: there is no other database that has to catch up. Its id names the fence.
create or replace function homeregion.fence(p_key text, p_epoch bigint, p_token bigint, p_barrier text) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
begin
  perform homeregion.lock_key(p_key);
  o := homeregion.own(p_key, p_epoch, p_token);
  if o.state = 'DRAINING' then
    update homeregion.ownership
    set state = 'FENCED', barrier_event_id = p_barrier, drained_by = null, drained_under = null, changed_at = clock_timestamp()
    where key = p_key;
    perform homeregion.announce(p_key);
  elsif o.state <> 'FENCED' then
    perform homeregion.unexpected(p_key, 'DRAINING or FENCED');
  end if;
  return query select s.* from homeregion.state s where s.key = p_key;
end $body$

-- @ The record says ACTIVE at this epoch, and so its home may write: checked. Never opens a key that the record does not.
create or replace function homeregion.open(p_key text, p_epoch bigint, p_token bigint) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
begin
  perform homeregion.begin_change();
  o := homeregion.own(p_key, p_epoch, p_token);
  if o.state <> 'ACTIVE' then perform homeregion.unexpected(p_key, 'ACTIVE on the control plane''s record'); end if;
  if homeregion.region_fenced(o.home_region) then perform homeregion.refuse_opening(p_key, o.home_region); end if;
  return query select s.* from homeregion.state s where s.key = p_key;
end $body$

-- @ The record says that this region is home: checked.
create or replace function homeregion.follow(p_key text, p_home text, p_epoch bigint, p_token bigint) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  o homeregion.ownership;
begin
  perform homeregion.begin_change();
  o := homeregion.own(p_key, p_epoch, p_token);
  if o.home_region <> p_home then perform homeregion.unexpected(p_key, format('home %s', p_home)); end if;
  return query select s.* from homeregion.state s where s.key = p_key;
end $body$

-- @ Takes over what the control plane holds and the boundary does not know (it was installed later): a key on the move as DRAINING, where
-- @ nothing is admitted and from where both ways lead on. What the caller says about homes and epochs is not believed.
create or replace function homeregion.register(p_keys text[], p_homes text[], p_epochs bigint[]) returns setof homeregion.state
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
  perform homeregion.begin_change();
  perform homeregion.take_over(p_keys);
  return query select s.* from homeregion.state s where s.key = any (p_keys);
end $body$

-- @ `p_keys` null: all.
create or replace function homeregion.take_over(p_keys text[]) returns void language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
  insert into homeregion.ownership (key, home_region, epoch, state)
  select a.key, a.home_region, a.epoch, case a.state when 'ACTIVE' then 'ACTIVE' else 'DRAINING' end
  -- No lock: a key that the boundary does not know cannot move, so what is read here stays true.
  from homeregion_control.ownership a where p_keys is null or a.key = any (p_keys) order by a.key collate "C"
  on conflict (key) do nothing;
end $body$

-- @ The boundary's ownership is derived here, in the transaction that changes the control plane's record: what the record allows is
-- @ admitted from that commit on, and what it takes away is refused from that commit on. A step that the boundary cannot follow (a fence that was not
-- @ taken, a fence in force under a record that knows of none) refuses the record's change as a whole.
create or replace function homeregion.follow_authority() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  b homeregion.ownership;
  run_token bigint;
begin
  -- Anybody may make a table with such columns; only the authority's own is believed.
  if tg_relid <> 'homeregion_control.ownership'::regclass then
    raise exception 'homeregion: % is not the authority', tg_relid::regclass using errcode = 'HR006';
  end if;
  select l.token into run_token from homeregion_control.ownership_log l where l.key = new.key and l.seq = new.seq;
  if tg_op = 'INSERT' then
    insert into homeregion.ownership (key, home_region, epoch, state, token)
    values (new.key, new.home_region, new.epoch, case new.state when 'ACTIVE' then 'ACTIVE' else 'DRAINING' end, run_token)
    on conflict (key) do nothing;
    if not found then perform homeregion.unexpected(new.key, 'not known to the boundary before the record'); end if;
    return null;
  end if;
  -- Nothing is handed over to a region that is fenced as a whole; a key that stays at home there is given back, and writable after the lift.
  if new.state = 'ACTIVE' and homeregion.region_closed(new.home_region) and new.home_region <> old.home_region then
    perform homeregion.refuse_opening(new.key, new.home_region);
  end if;
  select * into b from homeregion.ownership where key = new.key for no key update;
  if b.key is null then perform homeregion.unexpected(new.key, 'known to the boundary (homeregion key sync)'); end if;
  if run_token < b.token then
    raise exception 'homeregion: token % for key % is superseded by %', run_token, quote_literal(new.key), b.token using errcode = 'HR008';
  end if;
  if b.epoch <> old.epoch or b.home_region <> old.home_region then
    perform homeregion.unexpected(new.key, format('home %s, epoch %s', old.home_region, old.epoch));
  end if;
  if new.state = 'DRAINING' then
    if b.state <> 'ACTIVE' then perform homeregion.unexpected(new.key, 'ACTIVE'); end if;
    update homeregion.ownership
    set state = 'DRAINING', token = run_token, barrier_event_id = null, changed_at = clock_timestamp(),
        drained_by = pg_current_xact_id(), drained_under = pg_postmaster_start_time()
    where key = new.key;
  elsif new.state in ('FENCED', 'CATCH_UP') then
    if b.state <> 'FENCED' then perform homeregion.unexpected(new.key, 'FENCED, by the fence itself'); end if;
    return null;
  else
    -- A drain is taken back under the same epoch; a fence is left behind only by a new one.
    if b.state <> (case when new.epoch = b.epoch then 'DRAINING' else 'FENCED' end) then
      perform homeregion.unexpected(new.key, case when new.epoch = b.epoch then 'DRAINING' else 'FENCED' end);
    end if;
    update homeregion.ownership
    set state = 'ACTIVE', home_region = new.home_region, epoch = new.epoch, token = run_token, barrier_event_id = null, drained_by = null,
        drained_under = null, changed_at = clock_timestamp()
    where key = new.key;
  end if;
  perform homeregion.announce(new.key);
  return null;
end $body$
