-- Regions that stop writing at their lease's end. As guard.sql: no SET clause, every name and operator qualified.
--
-- Why it holds: the guard asks for the end when a row is written, and a deferred trigger asks again at the commit. What commits later all the same
-- (a client that had its constraints checked early, a stall between the last check and the commit's record) has to be within the lease's margin.

-- @ Whether the region may not write now, by this server's clock. Regions without such a lease always may.
create or replace function homeregion.lease_over(p_region text) returns boolean language plpgsql volatile as $body$
declare
  is_open pg_catalog.bool;
begin
  if p_region operator(pg_catalog.<>) all ({{stop_regions}}::pg_catalog.text[]) then return false; end if;
  select pg_catalog.clock_timestamp() operator(pg_catalog.<) l.expires_at into is_open
  from homeregion.lease l where l.region operator(pg_catalog.=) p_region;
  if is_open then return false; end if;
  -- A frozen snapshot shows the lease of its first statement. Locking the row looks past it: one that was renewed since gives 40001, and
  -- the transaction may be tried again. The lock is let go at once.
  if pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed' then
    begin
      perform 1 from homeregion.lease l where l.region operator(pg_catalog.=) p_region for share;
      raise exception using errcode = 'HR999';
    exception
      when sqlstate 'HR999' then null;
      when serialization_failure then
        perform pg_catalog.nextval('homeregion.refused_stale_epoch');
        raise;
    end;
  end if;
  return true;
end $body$

-- @ Counts the refusal (the count survives the rollback) and raises.
create or replace function homeregion.refuse_lease(p_region text, p_why text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $body$
begin
  perform nextval('homeregion.refused_lease_over');
  raise exception 'homeregion: write refused: %', p_why
    using errcode = 'HR004', schema = 'homeregion', constraint = 'homeregion_guard', detail = json_build_object('localRegion', p_region)::text;
end $body$

-- @ Why the lease does not allow it, for the refusal.
create or replace function homeregion.lease_words(p_region text) returns text
language sql volatile set search_path = pg_catalog, pg_temp as $body$
  select coalesce((select format('the lease of %s is over since %s', p_region, l.expires_at) from homeregion.lease l where l.region = p_region),
                  format('%s was never granted a lease (homeregion agent)', p_region))
$body$

-- @ True for what the boundary itself writes into the outbox, whoever's lease is over: a fence's barrier and a heartbeat.
create or replace function homeregion.own_write(p_key text) returns boolean language plpgsql volatile as $body$
begin
  return {{own_write}};
end $body$

-- @ At the commit: a transaction that began under the lease does not end after it. Nor is one left behind as a prepared transaction, whose commit
-- @ nothing would check: told by the statement that is running, since a trigger has no other way to know.
create or replace function homeregion.check_lease_at_commit() returns void language plpgsql volatile as $body$
declare
  here pg_catalog.text := homeregion.local_region();
begin
  if homeregion.lease_over(here) then
    {{unless_applying}}perform homeregion.refuse_lease(here, pg_catalog.concat(homeregion.lease_words(here), ', at the commit'));
  elsif pg_catalog.current_setting('max_prepared_transactions') operator(pg_catalog.<>) '0'
    and here operator(pg_catalog.=) any ({{stop_regions}}::pg_catalog.text[])
    and pg_catalog.current_query() operator(pg_catalog.~*) '(^|;)(\s|/\*.*?\*/|--[^\n]*\n)*prepare(\s|/\*.*?\*/|--[^\n]*\n)+transaction' then
    {{unless_applying}}perform homeregion.refuse_lease(here, 'a prepared transaction could be committed after the lease is over');
  end if;
end $body$

-- @ On every guarded table but the outbox. Decides the common case by itself, since it runs for every row.
create or replace function homeregion.lease_at_commit() returns trigger language plpgsql volatile security definer as $body$
declare
  is_open pg_catalog.bool;
begin
  select pg_catalog.clock_timestamp() operator(pg_catalog.<) l.expires_at into is_open
  from homeregion.lease l where l.region operator(pg_catalog.=) {{here}};
  if is_open and (pg_catalog.current_setting('max_prepared_transactions') operator(pg_catalog.=) '0'
                  or pg_catalog.current_query() operator(pg_catalog.!~~*) '%prepare%') then
    return null;
  end if;
  perform homeregion.check_lease_at_commit();
  return null;
end $body$

-- @ On the outbox: rows that the boundary wrote itself pass.
create or replace function homeregion.lease_at_commit_outbox() returns trigger language plpgsql volatile security definer as $body$
declare
  is_open pg_catalog.bool;
begin
  select pg_catalog.clock_timestamp() operator(pg_catalog.<) l.expires_at into is_open
  from homeregion.lease l where l.region operator(pg_catalog.=) {{here}};
  if is_open and (pg_catalog.current_setting('max_prepared_transactions') operator(pg_catalog.=) '0'
                  or pg_catalog.current_query() operator(pg_catalog.!~~*) '%prepare%') then
    return null;
  end if;
  if homeregion.own_write(new.{{outbox_key}}::pg_catalog.text) then return null; end if;
  perform homeregion.check_lease_at_commit();
  return null;
end $body$
