-- One database for all regions: a session belongs to the region of the role it logged in with.

-- @ Which login writes for which region, as configured. By the role of the login, which neither SET ROLE nor any setting changes.
create table if not exists homeregion.writer_region (
  role   name primary key,
  region text not null
)

-- @ The configured logins, and nobody else.
delete from homeregion.writer_region where role <> all ({{writer_roles}}::name[])

-- @ One region a login.
insert into homeregion.writer_region (role, region) select w.role, w.region from unnest({{writer_roles}}::name[], {{writer_regions}}::text[]) as w(role, region)
on conflict (role) do update set region = excluded.region

-- @ This session's region; null for a login that belongs to none. Whoever may not read the table may ask for its own.
create or replace function homeregion.local_region() returns text language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as $body$ select m.region from homeregion.writer_region m where m.role = session_user $body$

-- @ No key is at home anywhere before the control plane, in this same database, says so.
create or replace function homeregion.default_home() returns text language sql immutable parallel safe
as $body$ select null::pg_catalog.text $body$
