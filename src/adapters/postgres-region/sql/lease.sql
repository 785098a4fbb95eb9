-- A region's lease: the right to write until a moment of the region's own clock, told by the control plane's side alone. Kept here whatever the
-- region does at its end; that it refuses writes then is lease-stop.sql, for regions whose configuration says so.

-- @ The end of the lease, one row a region. No row: nothing was ever granted.
create table if not exists homeregion.lease (
  region     text primary key,
  generation bigint not null,
  expires_at timestamptz not null,
  granted_at timestamptz not null
)

-- @ Refused because the lease was over, or never granted.
create sequence if not exists homeregion.refused_lease_over

-- @ The clock that the lease ends by, in full precision: the reading a grant is counted from.
create or replace function homeregion.read_clock() returns timestamptz
language sql volatile set search_path = pg_catalog, pg_temp as $body$ select clock_timestamp() $body$

-- @ Takes in a grant of the control plane: its end is absolute, so that one that comes late extends nothing. The highest generation stands, with
-- @ whatever end it carries: an earlier one too, since the clock may have been set back. Asked again with the same, it changes nothing.
create or replace function homeregion.grant_lease(p_region text, p_generation bigint, p_expires_at timestamptz) returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  l homeregion.lease;
begin
  if ({{region_known}}) is not true then
    raise exception 'homeregion: this database belongs to %, not to %', homeregion.local_region(), p_region using errcode = 'HR006';
  end if;
  if (p_generation > 0 and isfinite(p_expires_at)) is not true then
    raise exception 'homeregion: a lease has a generation and an end' using errcode = 'HR006';
  end if;
  perform homeregion.begin_change();
  -- Lost in a crash, the lease is the earlier one: it need not wait for standbys, which could keep a healthy region from its lease.
  perform set_config('synchronous_commit', 'local', true);
  insert into homeregion.lease as s (region, generation, expires_at, granted_at) values (p_region, p_generation, p_expires_at, clock_timestamp())
  on conflict (region) do update set generation = excluded.generation, expires_at = excluded.expires_at, granted_at = excluded.granted_at
  where s.generation < excluded.generation
  returning * into l;
  if l.region is null then
    select * into l from homeregion.lease where region = p_region;
    if l.generation > p_generation or l.expires_at < p_expires_at then
      raise exception 'homeregion: grant % of the lease of % is superseded by %, until %', p_generation, p_region, l.generation, l.expires_at
        using errcode = 'HR008';
    end if;
  end if;
  return l.expires_at;
end $body$

-- @ Whether writes stop at the end here, as the catalogue says now: the guard's triggers stand, enabled, on every table that should have them.
create or replace function homeregion.lease_stops(p_region text) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $body$
  select p_region = any ({{stop_regions}}::text[]) and not exists (
    select from (values {{lease_triggers}}) as due(relation, trigger, enabled)
    where not exists (
      select from pg_trigger t where t.tgrelid = to_regclass(due.relation) and t.tgname = due.trigger and t.tgenabled = due.enabled::"char"
    )
  )
$body$

-- @ Only operators grant.
do $do$
declare
  o name;
begin
  foreach o in array {{operators}}::name[] loop
    execute format('grant execute on function homeregion.read_clock(), homeregion.grant_lease(text, bigint, timestamptz),
      homeregion.lease_stops(text) to %I', o);
  end loop;
end $do$
