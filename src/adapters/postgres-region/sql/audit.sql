-- Every way around the guard that the catalogue shows. $1: quoted names of the guarded tables, $2: of the tables that are left open on purpose.
-- $3: names of their key columns. $4: the operators' roles. DML by whatever path (views, cascades, SECURITY DEFINER, pg_write_all_data, subscriptions, replica sessions) meets
-- the guard and is no finding; taking the guard away is.
with recursive roots as (
  select to_regclass(n)::oid as oid from unnest($1::text[]) n where to_regclass(n) is not null
), tree as (
  select oid from roots union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
), tables as (
  select c.oid, c.oid::regclass::text as name, c.relowner, c.relnamespace, c.relacl from tree join pg_class c on c.oid = tree.oid
), boundary as (
  select r.oid from pg_roles r where r.rolname = 'homeregion_owner'
), holders as (
  select 'superuser' as kind, r.oid as holder, 'is a superuser: it can disable the guard, and nobody can fence it by privileges' as why, null::text as closes
  from pg_roles r where r.rolsuper
  union all
  select 'table-owner', t.relowner, format('owns %s: it can disable or drop the guard', string_agg(t.name, ', ' order by t.name)), null
  from tables t group by t.relowner
  union all
  select distinct 'schema-owner', coalesce(d.datdba, n.nspowner), format('owns schema %I: it can drop and remake its tables', n.nspname), null
  from tables t join pg_namespace n on n.oid = t.relnamespace
  left join pg_roles o on o.oid = n.nspowner and o.rolname = 'pg_database_owner'
  left join pg_database d on d.datname = current_database() and o.oid is not null
  union all
  select 'boundary-owner', b.oid, 'owns the guard: it can replace it', null from boundary b
  union all
  select 'trigger-privilege', a.grantee, format('may make triggers on %s: one that runs after the guard can change the row', t.name),
         format('revoke trigger on %s from %s', t.name, case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
  from tables t, aclexplode(t.relacl) a where a.privilege_type = 'TRIGGER' and a.grantee <> t.relowner
  union all
  select 'server-files', r.oid, format('%s reaches the server''s files and programs, and so everything', r.rolname), null
  from pg_roles r where r.rolname in ('pg_write_server_files', 'pg_execute_server_program')
  union all
  select 'boundary-table', a.grantee, format('may change homeregion.%I', c.relname),
         format('revoke all on homeregion.%I from %s', c.relname, case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
  from pg_class c, aclexplode(c.relacl) a, boundary b
  where c.relnamespace = to_regnamespace('homeregion') and c.relkind in ('r', 'v', 'S') and a.grantee <> b.oid
    and (a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER') or c.relkind = 'S')
  union all
  select 'boundary-function', a.grantee, format('may run %s, which opens keys', p.oid::regprocedure),
         format('revoke execute on function %s from %s', p.oid::regprocedure, case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
  from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a, boundary b
  where p.pronamespace = to_regnamespace('homeregion') and p.prosecdef and p.proname in ('claim', 'drain', 'fence', 'open', 'follow', 'register', 'require_epoch')
    and a.grantee <> b.oid and a.grantee not in (select oid from pg_roles where rolname = any ($4::text[]))
  union all
  select 'create-role', r.oid, 'has CREATEROLE: before PostgreSQL 16 it may make itself a member of the owner of a guarded table', format('alter role %I nocreaterole', r.rolname)
  from pg_roles r where r.rolcreaterole and not r.rolsuper and current_setting('server_version_num')::int < 160000
  union all
  select 'security-definer', a.grantee, format('may run %s as %s; its text changes tables or runs text of others', p.oid::regprocedure, pg_get_userbyid(p.proowner)),
         format('revoke execute on function %s from %s', p.oid::regprocedure, case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
  where p.prosecdef and n.nspname not in ('pg_catalog', 'information_schema', 'homeregion') and a.grantee <> p.proowner
    and p.prorettype not in ('trigger'::regtype, 'event_trigger'::regtype)
    and (p.prosrc ~* '\m(execute|trigger|drop|alter)\M' or p.prolang = (select l.oid from pg_language l where l.lanname = 'c'))
    and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
    and ((select r.rolsuper from pg_roles r where r.oid = p.proowner)
         or exists (select from tables t where pg_has_role(p.proowner, t.relowner, 'MEMBER')) or exists (select from boundary b where b.oid = p.proowner))
), reach as (
  select r.oid as role, r.oid as holder, ''::text collate "C" as via from pg_roles r where r.rolcanlogin
  union
  select x.role, m.roleid, (case when x.via = '' then '' else x.via || ', ' end || pg_get_userbyid(m.roleid)::text) collate "C" from reach x join pg_auth_members m on m.member = x.holder
)
select h.kind, r.rolname::text as subject,
       format('%s %s%s', r.rolname, h.why, case when x.via = '' then '' else format(' (through %s)', x.via) end) as why,
       case when x.via <> '' then format('revoke %I from %I', pg_get_userbyid(x.holder), r.rolname)
            when h.kind = 'superuser' then format('alter role %I nosuperuser', r.rolname)
            when h.kind = 'table-owner' then format('reassign the tables to a role that cannot log in, and grant %I what it needs', r.rolname)
            else h.closes end as closes,
       exists (select from pg_stat_activity s where s.usesysid = r.oid and s.datname = current_database() and s.backend_type = 'client backend'
                 and s.application_name not like 'homeregion%') as live
from holders h join reach x on x.holder = h.holder join pg_roles r on r.oid = x.role
where r.rolcanlogin and (h.kind = 'superuser' or not r.rolsuper)
union all
select h.kind, 'public', 'every role ' || h.why, h.closes, true from holders h where h.holder = 0
union all
select 'unguarded-table', c.oid::regclass::text, format('%s has a column %I and no guard', c.oid::regclass, a.attname),
       'add it to the guarded tables of the configuration, or accept it with a reason', true
from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid and not a.attisdropped and a.attnum > 0
where c.relkind in ('r', 'p', 'f') and c.relpersistence <> 't' and a.attname = any ($3::text[]) and c.oid not in (select oid from tree)
  and n.nspname not in ('pg_catalog', 'information_schema', 'homeregion', 'homeregion_control') and n.nspname !~ '^pg_'
  and c.oid <> all (select to_regclass(o)::oid from unnest($2::text[]) o where to_regclass(o) is not null)
order by 1, 2, 3
