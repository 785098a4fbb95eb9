-- Regions that stop writing at their lease's end. As guard.sql: no SET clause, every name and operator qualified.
--
-- Why it holds: the guard asks for the end when a row is written, and a deferred trigger asks again at the commit. What commits later all the same
-- (a client that had its constraints checked early, a stall between the last check and the commit's record) has to be within the lease's margin.
--
-- The end that is asked for is a sequence's value: a function call for each row instead of a query, and the value of now in every snapshot.

-- @ The end of each such lease once more, in microseconds since 1970. Derived from homeregion.lease, and written by its trigger alone.
do $do$
declare
  s text;
begin
  foreach s in array {{lease_sequences}} loop
    execute format('create sequence if not exists homeregion.%I minvalue -9223372036854775808', s);
  end loop;
end $do$

-- @ Carries a grant over when it commits: a sequence takes no value back, so one that is rolled back must not have come so far.
create or replace function homeregion.lease_told() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $body$
declare
  s regclass := case coalesce(new.region, old.region) {{sequence_of_region}} end;
begin
  if s is null then return null; end if;
  if tg_op = 'DELETE' then
    perform setval(s, 1, false);
  else
    perform setval(s, floor(extract(epoch from new.expires_at) * 1000000)::bigint);
  end if;
  return null;
end $body$

-- @ Whoever changes the lease, and grants made before this was installed. Under the trigger's lock, so that no grant falls between the two.
do $do$ begin
  lock table homeregion.lease in share row exclusive mode;
  if not exists (select from pg_trigger where tgrelid = 'homeregion.lease'::regclass and tgname = 'homeregion_lease_told') then
    create constraint trigger homeregion_lease_told after insert or update or delete on homeregion.lease
      deferrable initially deferred for each row execute function homeregion.lease_told();
  end if;
  alter table homeregion.lease enable always trigger homeregion_lease_told;
  perform setval(w.s, coalesce(floor(extract(epoch from l.expires_at) * 1000000)::bigint, 1), l.region is not null)
  from (select x.region, case x.region {{sequence_of_region}} end as s from unnest({{stop_regions}}::text[]) as x(region)) w
  left join homeregion.lease l on l.region = w.region;
end $do$

-- @ The end of the region's lease by this server's clock; null where none was ever granted.
create or replace function homeregion.lease_end(p_region text) returns timestamptz language plpgsql volatile as $body$
begin
  return {{lease_end}};
end $body$

-- @ Whether the region may not write now, by this server's clock. Regions without such a lease always may.
create or replace function homeregion.lease_over(p_region text) returns boolean language plpgsql volatile as $body$
begin
  if p_region operator(pg_catalog.<>) all ({{stop_regions}}::pg_catalog.text[]) then return false; end if;
  return (pg_catalog.clock_timestamp() operator(pg_catalog.<) homeregion.lease_end(p_region)) is not true;
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
language plpgsql volatile set search_path = pg_catalog, pg_temp as $body$
declare
  ended timestamptz := homeregion.lease_end(p_region);
begin
  if ended is null then return format('%s was never granted a lease (homeregion agent)', p_region); end if;
  return format('the lease of %s is over since %s', p_region, ended);
end $body$

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
    and pg_catalog.current_query() operator(pg_catalog.~*) '(^|;)(\s|/\*.*?\*/|--[^\n\r]*[\n\r])*prepare(\s|/\*.*?\*/|--[^\n\r]*[\n\r])+transaction' then
    {{unless_applying}}perform homeregion.refuse_lease(here, 'a prepared transaction could be committed after the lease is over');
  end if;
end $body$

-- @ On every row of a guarded table but the outbox. Decides the common case by itself, without a query.
create or replace function homeregion.lease_at_commit() returns trigger language plpgsql volatile security definer as $body$
begin
  if {{open_here}} then
    if pg_catalog.current_setting('max_prepared_transactions') operator(pg_catalog.=) '0' then return null; end if;
    if pg_catalog.current_query() operator(pg_catalog.!~~*) '%prepare%' then return null; end if;
  end if;
  perform homeregion.check_lease_at_commit();
  return null;
end $body$

-- @ On the outbox: rows that the boundary wrote itself pass.
create or replace function homeregion.lease_at_commit_outbox() returns trigger language plpgsql volatile security definer as $body$
begin
  if {{open_here}} then
    if pg_catalog.current_setting('max_prepared_transactions') operator(pg_catalog.=) '0' then return null; end if;
    if pg_catalog.current_query() operator(pg_catalog.!~~*) '%prepare%' then return null; end if;
  end if;
  if homeregion.own_write(new.{{outbox_key}}::pg_catalog.text) then return null; end if;
  perform homeregion.check_lease_at_commit();
  return null;
end $body$

-- @ What a statement on a bulk-loaded table queues for the commit, instead of each of its rows. Nothing stays in it. UNLOGGED: no publication
-- @ of all tables carries it, or needs to identify its rows, and it writes no WAL.
create unlogged table if not exists homeregion.commit_check (only_column boolean not null)

-- @ The same check at the commit.
do $do$ begin
  if not exists (select from pg_trigger where tgrelid = 'homeregion.commit_check'::regclass and tgname = 'homeregion_commit_check') then
    create constraint trigger homeregion_commit_check after insert on homeregion.commit_check
      deferrable initially deferred for each row execute function homeregion.lease_at_commit();
  end if;
  alter table homeregion.commit_check enable trigger homeregion_commit_check;
end $do$

-- @ Queues it, and takes the row away at once; the check stays queued, unless the sub-transaction that queued it is rolled back together with
-- @ what it wrote. A marker that says "queued already" would have to be a setting, which the writer can set as well.
create or replace function homeregion.check_at_commit() returns void language plpgsql volatile as $body$
declare
  queued pg_catalog.tid;
begin
  insert into homeregion.commit_check values (true) returning ctid into queued;
  delete from homeregion.commit_check c where c.ctid operator(pg_catalog.=) queued;
end $body$
