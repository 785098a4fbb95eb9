-- A sign of life through the region's own outbox, on the way that its events take: the other regions' inboxes record it as they do a barrier.

-- @ The last heartbeat, and the transaction that wrote it, by which the guard knows it. One row.
create table if not exists homeregion.beat (
  only_row   boolean primary key default true check (only_row),
  event_id   text not null,
  written_by xid8 not null,
  written_at timestamptz not null
)

-- @ The key of this region's heartbeats, in the type that the service gives its keys. Nobody's: it is never registered.
create or replace function homeregion.heartbeat_key() returns text language plpgsql stable set search_path = pg_catalog, pg_temp as $body$
begin
  -- Looked up when it runs: the owner may not see the outbox's schema yet when this is made.
  return (select case
    when coalesce(nullif(y.typbasetype, 0), y.oid) = 'uuid'::regtype then md5(concat('homeregion.heartbeat.', homeregion.local_region()))::uuid::text
    when coalesce(nullif(y.typbasetype, 0), y.oid) in ('bigint'::regtype, 'integer'::regtype)
      then (-1 - (hashtext(concat('homeregion.heartbeat.', homeregion.local_region())) & 1073741823))::text
    else concat('homeregion.heartbeat.', homeregion.local_region())
  end
  from pg_attribute a join pg_type y on y.oid = a.atttypid
  where a.attrelid = {{outbox_literal}}::regclass and a.attname = {{key_name}});
end $body$

-- @ True inside the transaction of a heartbeat, for its key.
create or replace function homeregion.is_heartbeat(p_key text) returns boolean language plpgsql volatile as $body$
begin
  if not exists (select from homeregion.beat b where b.written_by operator(pg_catalog.=) pg_catalog.pg_current_xact_id_if_assigned()) then
    return false;
  end if;
  return p_key operator(pg_catalog.=) homeregion.heartbeat_key();
end $body$

-- @ Writes one heartbeat. Refused while the region is fenced as a whole: it would tell of a life that nobody may rely on. No SET clause, as the
-- @ fence's barrier.
create or replace function homeregion.heartbeat(p_barrier text) returns text language plpgsql volatile security definer as $body$
declare
  p_key pg_catalog.text := homeregion.heartbeat_key();
  p_epoch pg_catalog.int8 := 1;
begin
  if homeregion.region_fenced(homeregion.local_region()) then
    raise exception 'homeregion: no heartbeat: % is fenced as a whole', homeregion.local_region() using errcode = 'HR009';
  end if;
  perform homeregion.begin_change();
  insert into homeregion.beat (event_id, written_by, written_at) values (p_barrier, pg_catalog.pg_current_xact_id(), pg_catalog.clock_timestamp())
  on conflict (only_row) do update set event_id = excluded.event_id, written_by = excluded.written_by, written_at = excluded.written_at;
  insert into {{outbox}} ({{columns}})
  select {{values}}
  from pg_catalog.jsonb_populate_record(null::{{outbox}}, pg_catalog.jsonb_build_object({{fields}})) r;
  return p_barrier;
end $body$

-- @ Operators only.
do $do$
declare
  o name;
begin
  foreach o in array {{operators}}::name[] loop
    execute format('grant execute on function homeregion.heartbeat(text) to %I', o);
  end loop;
end $do$
