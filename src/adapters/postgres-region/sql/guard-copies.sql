-- Copies of foreign changes, which only a database of its own takes in. As guard.sql: no SET clause, every name and operator qualified.

-- @ True for a login that is a member of homeregion_apply, by whatever path. By session_user, which SET ROLE does not change; superusers
-- @ are members of every role and count as ordinary writers.
create or replace function homeregion.is_applying() returns boolean language plpgsql stable as $body$
begin
  return pg_catalog.pg_has_role(session_user, 'homeregion_apply'::pg_catalog.name, 'MEMBER')
     and not (select r.rolsuper from pg_catalog.pg_roles r where r.rolname operator(pg_catalog.=) session_user);
end $body$

-- @ Admits a copy of a foreign change: a subscription, a session in replica mode, or a member of homeregion_apply. Only into keys whose
-- @ home is elsewhere, and not while this region is giving the key away.
create or replace function homeregion.check_copy(p_key text) returns void language plpgsql volatile as $body$
declare
  admitted pg_catalog.bool;
  frozen pg_catalog.bool := pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed';
begin
  if frozen then
    -- A frozen snapshot may be stale: locking the row fails with 40001 when it was changed since. The lock is let go at once.
    begin
      perform 1 from homeregion.ownership o where o.key operator(pg_catalog.=) (p_key collate pg_catalog."C") for share;
      raise exception using errcode = 'HR999';
    exception
      when sqlstate 'HR999' then null;
      when serialization_failure then
        perform pg_catalog.nextval('homeregion.refused_stale_epoch');
        raise;
    end;
  end if;
  select o.home_region operator(pg_catalog.<>) homeregion.local_region() and o.state operator(pg_catalog.=) 'ACTIVE' into admitted
  from homeregion.ownership o where o.key operator(pg_catalog.=) (p_key collate pg_catalog."C");
  -- A key that nobody registered belongs to the default home; a frozen snapshot cannot tell that nobody did.
  if admitted or (admitted is null and not frozen and homeregion.default_home() operator(pg_catalog.<>) homeregion.local_region()) then return; end if;
  perform homeregion.refuse(p_key, null, true);
end $body$
