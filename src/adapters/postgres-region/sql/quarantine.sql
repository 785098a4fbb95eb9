-- Events of an older epoch that arrive after the key came home. The last owner's word on them was given when the key was opened here, so they
-- may not be applied any more, and they are the only trace of what their writers were told: kept with their payload until somebody decides.

-- @ One row an event, in the order of arrival (`position`). `run_id` to `decided_at` are null until an operator has decided. Nothing here deletes.
create table if not exists homeregion.quarantine (
  position          bigint generated always as identity unique,
  event_id          text primary key,
  key               text collate pg_catalog."C" not null,
  owner_epoch       bigint not null,
  current_epoch     bigint not null,
  source_region     text,
  home_region       text,
  aggregate_type    text,
  aggregate_id      text,
  aggregate_version bigint,
  event_type        text,
  occurred_at       timestamptz,
  envelope          jsonb not null,
  payload           jsonb,
  quarantined_at    timestamptz not null default pg_catalog.clock_timestamp(),
  run_id            text,
  decision          text check (decision in ('drop', 'reapply', 'exported')),
  reason            text check (reason <> ''),
  decided_by        text,
  decided_at        timestamptz,
  constraint quarantine_is_late check (owner_epoch < current_epoch),
  constraint quarantine_decided_whole check (pg_catalog.num_nulls(run_id, decision, reason, decided_by, decided_at) in (0, 5))
)

-- @ By key, in the order of arrival.
create index if not exists quarantine_by_key on homeregion.quarantine (key, position)

-- @ What is still to be decided.
create index if not exists quarantine_undecided on homeregion.quarantine (position) where decision is null

-- @ Keys that had their home here and left, with the last epoch they had it under: what is older came too late for this region then, and does for ever.
create table if not exists homeregion.left_home (
  key   text collate pg_catalog."C" primary key,
  epoch bigint not null
)

-- @ Remembers a key that leaves, in the commit in which it does.
create or replace function homeregion.key_left() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
  insert into homeregion.left_home as l (key, epoch) values (old.key, old.epoch)
  on conflict (key) do update set epoch = greatest(l.epoch, excluded.epoch);
  return null;
end $body$

-- @ Fires for the keys that leave alone.
create or replace trigger zzz_homeregion_left after update on homeregion.ownership
for each row when (old.home_region = {{region}} and new.home_region <> {{region}}) execute function homeregion.key_left()

-- @ ALWAYS: also in sessions that set session_replication_role.
alter table homeregion.ownership enable always trigger zzz_homeregion_left

-- @ Which of these events (by place, from 1) are of an epoch that this region's own time as home has ended. Takes each key's shared lock first and
-- @ keeps it to the end of the transaction, so the answer holds until then: a key cannot be opened here meanwhile.
create or replace function homeregion.late_events(p_keys text[], p_epochs bigint[]) returns setof integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'homeregion: late events are told at READ COMMITTED only' using errcode = 'HR006';
  end if;
  -- In one order, so that two consumers and a fence that waits between them cannot wait in a circle.
  perform pg_advisory_xact_lock_shared({{lock_space}}, l.h)
  from (select distinct hashtext(k.key collate "C") as h from unnest(p_keys) as k(key) where k.key is not null order by 1) l;
  return query
  select e.place::integer
  from unnest(p_keys, p_epochs) with ordinality as e(key, epoch, place)
  left join homeregion.ownership o on o.key = e.key and o.home_region = homeregion.local_region()
  left join homeregion.left_home l on l.key = e.key
  where e.epoch < greatest(o.epoch, l.epoch)
  order by e.place;
end $body$

-- @ Keeps one event when it is late, and says `quarantined`, or `known` when it was kept before. Otherwise keeps nothing and says `apply`: it is the
-- @ caller's to apply (ownership changed since it was refused). `p_envelope`: the event's headers by name; `p_payload`: its value as it came.
create or replace function homeregion.quarantine_event(p_envelope jsonb, p_payload text) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  v_key text := p_envelope ->> 'key';
  v_epoch bigint := (p_envelope ->> 'owner_epoch')::bigint;
  v_current bigint;
  v_version bigint;
  v_occurred timestamptz;
  v_payload jsonb;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'homeregion: events are put into quarantine at READ COMMITTED only' using errcode = 'HR006';
  end if;
  if v_key is null or v_epoch is null or p_envelope ->> 'event_id' is null then
    raise exception 'homeregion: an envelope has event_id, key and owner_epoch' using errcode = '22004';
  end if;
  -- Its offset is committed after this: what a crash can take back would be lost.
  perform set_config('synchronous_commit', 'on', true);
  perform pg_advisory_xact_lock_shared({{lock_space}}, hashtext(v_key collate "C"));
  select greatest((select o.epoch from homeregion.ownership o where o.key = v_key and o.home_region = homeregion.local_region()),
                  (select l.epoch from homeregion.left_home l where l.key = v_key)) into v_current;
  if v_current is null or v_epoch >= v_current then return 'apply'; end if;
  -- What cannot be read stays in the envelope as it came: an event that is refused here would stop its partition for ever.
  begin
    v_version := (p_envelope ->> 'aggregate_version')::bigint;
  exception when data_exception then null;
  end;
  begin
    v_occurred := (p_envelope ->> 'occurred_at')::timestamptz;
  exception when data_exception then null;
  end;
  begin
    v_payload := p_payload::jsonb;
  exception when data_exception or program_limit_exceeded then
    v_payload := jsonb_build_object('homeregion.base64', replace(encode(convert_to(p_payload, 'UTF8'), 'base64'), E'\n', ''));
  end;
  insert into homeregion.quarantine (event_id, key, owner_epoch, current_epoch, source_region, home_region, aggregate_type, aggregate_id,
    aggregate_version, event_type, occurred_at, envelope, payload)
  values (p_envelope ->> 'event_id', v_key, v_epoch, v_current, p_envelope ->> 'source_region', p_envelope ->> 'home_region',
    p_envelope ->> 'aggregate_type', p_envelope ->> 'aggregate_id', v_version, p_envelope ->> 'event_type', v_occurred, p_envelope, v_payload)
  on conflict (event_id) do nothing;
  return case when found then 'quarantined' else 'known' end;
end $body$

-- @ Puts an operator's decision on events that have none yet, and returns all of them as they are now: a decision stands.
create or replace function homeregion.decide_quarantined(p_event_ids text[], p_run text, p_decision text, p_reason text)
returns setof homeregion.quarantine
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
begin
  perform set_config('synchronous_commit', 'on', true);
  update homeregion.quarantine q
  set run_id = p_run, decision = p_decision, reason = p_reason, decided_by = session_user, decided_at = clock_timestamp()
  where q.event_id = any (p_event_ids) and q.decision is null;
  return query select q.* from homeregion.quarantine q where q.event_id = any (p_event_ids) order by q.position;
end $body$

-- @ Replication consumers keep what they may not apply.
grant execute on function homeregion.late_events(text[], bigint[]), homeregion.quarantine_event(jsonb, text) to homeregion_apply

-- @ The operator reads it, and decides.
do $do$
declare
  o name;
begin
  foreach o in array {{operators}}::name[] loop
    execute format('grant select on homeregion.quarantine to %I', o);
    execute format('grant execute on function homeregion.decide_quarantined(text[], text, text, text) to %I', o);
  end loop;
end $do$
