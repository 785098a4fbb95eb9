-- What every statement of the audit stands on: the guarded tables with their parts, and which login can act as which role. $1: quoted names of the
-- tables, $2: of those left open on purpose, $3: names of the key columns, $4: the operators' roles, $5: the declared writers, $6: logins that the
-- credentials fence holds, $7: the fencers' roles, $8: quoted name of the outbox, $9: its column of publication, $10: whether copies are written here.
with recursive given as (
  select $1::text[] as relations, $2::text[] as open_relations, $3::text[] as key_columns, $4::text[] as operators, $5::text[] as writers,
         $6::text[] as covered, $7::text[] as fencers, to_regclass($8::text)::oid as outbox, $9::name as published_at, $10::boolean as copies,
         current_setting('server_version_num')::int as version
), roots as (
  select to_regclass(n)::oid as oid from given, unnest(given.relations) n where to_regclass(n) is not null
), tree as (
  select oid from roots union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
), tables as (
  select c.oid, c.oid::regclass::text as name, c.relowner, c.relnamespace, c.relacl, c.relkind, c.relrowsecurity
  from tree join pg_class c on c.oid = tree.oid
), boundary as (
  select r.oid from pg_roles r where r.rolname = 'homeregion_owner'
), hops as (
  -- A membership that lets one act as the other, or give itself the right to; since 16 one may do neither.
  select m.member, m.roleid, bool_and(coalesce(o.j->>'inherit_option', 'true') = 'false' and o.j->>'set_option' = 'false') as admin_only,
         string_agg(format('revoke %I from %I%s', a.rolname, b.rolname,
           case when g.version >= 160000 and m.grantor <> 10 then format(' granted by %I', pg_get_userbyid(m.grantor)) else '' end), '; ') as closes
  from given g, pg_auth_members m cross join lateral (select to_jsonb(m) as j) o join pg_roles a on a.oid = m.roleid join pg_roles b on b.oid = m.member
  where coalesce(o.j->>'inherit_option', 'true') = 'true' or o.j->>'set_option' = 'true' or m.admin_option
  group by m.member, m.roleid
), reach as (
  select r.oid as role, r.oid as holder, 0::oid as first from pg_roles r where r.rolcanlogin
  union
  select x.role, h.roleid, case when x.first = 0 then h.roleid else x.first end from reach x join hops h on h.member = x.holder
), applying as (
  -- Replication consumers: the boundary knows their copies from writes.
  select x.role from given g, reach x join pg_roles r on r.oid = x.role
  where g.copies and x.holder = (select a.oid from pg_roles a where a.rolname = 'homeregion_apply') and not r.rolsuper and r.rolname <> all (g.writers)
), known as (
  select r.oid as role, r.rolname = any (g.writers) as writer from given g, pg_roles r
)
