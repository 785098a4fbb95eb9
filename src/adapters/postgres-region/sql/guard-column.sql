-- The guard's triggers for one name of a key column, {{column}}. The functions decide the common case (an ordinary session, READ COMMITTED, the key
-- writable here) in one lock and one look-up; everything else goes through homeregion.check_key.

-- @ BEFORE INSERT: admits a row of a key that may be written here.
create or replace function homeregion.{{insert}}() returns trigger language plpgsql volatile security definer as $body$
declare
  admitted pg_catalog.bool;
begin
  if pg_catalog.pg_advisory_xact_lock_shared({{lock_space}}, pg_catalog.hashtext(new.{{column}}::pg_catalog.text collate pg_catalog."C")) is not null then
    select {{common_case}} into admitted
    from homeregion.writable w where w.key operator(pg_catalog.=) (new.{{column}}::pg_catalog.text collate pg_catalog."C");
    if admitted{{and_open}} then return new; end if;
  end if;
  perform homeregion.check_key(new.{{column}}::pg_catalog.text);
  return new;
end $body$

-- @ BEFORE UPDATE: the same, and a row that moves from one key to another needs both.
create or replace function homeregion.{{update}}() returns trigger language plpgsql volatile security definer as $body$
declare
  admitted pg_catalog.bool;
begin
  if pg_catalog.pg_advisory_xact_lock_shared({{lock_space}}, pg_catalog.hashtext(new.{{column}}::pg_catalog.text collate pg_catalog."C")) is not null then
    select {{common_case}} into admitted
    from homeregion.writable w where w.key operator(pg_catalog.=) (new.{{column}}::pg_catalog.text collate pg_catalog."C");
    if admitted{{and_open}} and new.{{column}}::pg_catalog.text operator(pg_catalog.=) (old.{{column}}::pg_catalog.text collate pg_catalog."C") then return new; end if;
  end if;
  perform homeregion.check_key(old.{{column}}::pg_catalog.text);
  perform homeregion.check_key(new.{{column}}::pg_catalog.text);
  return new;
end $body$

-- @ BEFORE DELETE.
create or replace function homeregion.{{delete}}() returns trigger language plpgsql volatile security definer as $body$
begin
  perform homeregion.check_key(old.{{column}}::pg_catalog.text);
  return old;
end $body$

-- @ AFTER INSERT of a bulk-loaded table: one check per key and statement.
create or replace function homeregion.{{inserted}}() returns trigger language plpgsql volatile security definer as $body$
declare
  k pg_catalog.text;
begin
  for k in select distinct n.{{column}}::pg_catalog.text collate pg_catalog."C" from new_rows n loop perform homeregion.check_key(k); end loop;
{{at_commit}}  return null;
end $body$

-- @ AFTER UPDATE of a bulk-loaded table: the keys before and after.
create or replace function homeregion.{{updated}}() returns trigger language plpgsql volatile security definer as $body$
declare
  k pg_catalog.text;
begin
  for k in
    select n.{{column}}::pg_catalog.text collate pg_catalog."C" from new_rows n
    union select o.{{column}}::pg_catalog.text collate pg_catalog."C" from old_rows o
  loop perform homeregion.check_key(k); end loop;
{{at_commit}}  return null;
end $body$

-- @ AFTER DELETE of a bulk-loaded table.
create or replace function homeregion.{{deleted}}() returns trigger language plpgsql volatile security definer as $body$
declare
  k pg_catalog.text;
begin
  for k in select distinct o.{{column}}::pg_catalog.text collate pg_catalog."C" from old_rows o loop perform homeregion.check_key(k); end loop;
{{at_commit}}  return null;
end $body$
