-- Ways around the guard itself: whoever can take it away, replace it, or pass for replication. DML by whatever path meets the guard and is none.
, definers as (
  select p.oid::regprocedure as proc, p.proowner, p.proacl, o.powerful, o.powerful or o.everything as unstopped,
         p.prosrc ~* '\m(execute|trigger|drop|alter)\M' or l.lanname = 'c' as reaching
  from pg_proc p join pg_namespace n on n.oid = p.pronamespace join pg_language l on l.oid = p.prolang
  cross join lateral (
    select (select r.rolsuper from pg_roles r where r.oid = p.proowner)
             or exists (select from tables t where pg_has_role(p.proowner, t.relowner, 'MEMBER')) or exists (select from boundary b where b.oid = p.proowner) as powerful,
           pg_has_role(p.proowner, (select w.oid from pg_roles w where w.rolname = 'pg_write_all_data'), 'MEMBER') as everything,
           exists (select from tables t where has_table_privilege(p.proowner, t.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
                                              or has_any_column_privilege(p.proowner, t.oid, 'INSERT, UPDATE')) as writes
  ) o
  where p.prosecdef and n.nspname not in ('pg_catalog', 'information_schema', 'homeregion') and p.prorettype not in ('trigger'::regtype, 'event_trigger'::regtype)
    and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
    and (o.powerful or o.writes)
), holders as (
  select 'superuser' as kind, r.oid as holder, array['boundary', 'credentials', 'read-only'] as around, 'is a superuser: it can disable the guard, and nobody can fence it by privileges' as why, null::text as closes
  from pg_roles r where r.rolsuper
  union all
  select 'table-owner', t.relowner, array['boundary', 'credentials', 'read-only'], format('owns %s: it can disable or drop the guard, and no privilege holds it; give them to a role that cannot log in', string_agg(t.name, ', ' order by t.name)), null
  from tables t group by t.relowner
  union all
  select distinct 'schema-owner', coalesce(d.datdba, n.nspowner), array['boundary', 'credentials', 'read-only'], format('owns schema %I: it can drop and remake its tables', n.nspname), null
  from tables t join pg_namespace n on n.oid = t.relnamespace
  left join pg_roles o on o.oid = n.nspowner and o.rolname = 'pg_database_owner'
  left join pg_database d on d.datname = current_database() and o.oid is not null
  union all
  select 'boundary-owner', b.oid, array['boundary', 'credentials', 'read-only'], 'owns the guard: it can replace it', null from boundary b
  union all
  select 'trigger-privilege', a.grantee, array['boundary'], format('may make triggers on %s: one that runs after the guard can change the row', t.name),
         format('revoke trigger on %s from %s', t.name, case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
  from tables t, aclexplode(t.relacl) a where a.privilege_type = 'TRIGGER' and a.grantee <> t.relowner
  union all
  select 'server-files', r.oid, array['boundary', 'credentials', 'read-only'], format('%s reaches the server''s files and programs, and so everything', r.rolname), null
  from pg_roles r where r.rolname in ('pg_write_server_files', 'pg_execute_server_program')
  union all
  select 'boundary-table', a.grantee, array['boundary'], format('may change homeregion.%I', c.relname),
         format('revoke all on homeregion.%I from %s', c.relname, case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
  from pg_class c, aclexplode(c.relacl) a, boundary b
  where c.relnamespace = to_regnamespace('homeregion') and c.relkind in ('r', 'v', 'S') and a.grantee <> b.oid
    and (a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER') or c.relkind = 'S')
    -- The fencer keeps its record there.
    and not (c.relname in ('fence', 'fence_item') and a.grantee in (select oid from pg_roles where rolname = any ((select fencers from given)::text[])))
  union all
  select 'boundary-function', a.grantee, array['boundary'], format('may run %s, which opens keys', p.oid::regprocedure),
         format('revoke execute on function %s from %s', p.oid::regprocedure, case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
  from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a, boundary b
  where p.pronamespace = to_regnamespace('homeregion') and p.prosecdef and p.proname in ('claim', 'drain', 'fence', 'open', 'follow', 'register', 'require_epoch')
    and a.grantee <> b.oid and a.grantee not in (select oid from pg_roles where rolname = any ((select operators from given)::text[]))
  union all
  select 'create-role', r.oid, array['boundary', 'credentials', 'read-only'], 'has CREATEROLE: before PostgreSQL 16 it may make itself a member of the owner of a guarded table', format('alter role %I nocreaterole', r.rolname)
  from pg_roles r where r.rolcreaterole and not r.rolsuper and current_setting('server_version_num')::int < 160000
  union all
  -- Its text names no guard that it takes away: what it writes as its owner meets the guard, but neither a privilege nor a password.
  select 'security-definer', a.grantee,
         case when f.powerful and f.reaching then array['boundary', 'credentials', 'read-only'] when f.unstopped then array['credentials', 'read-only'] else array['credentials'] end,
         format('may run %s as %s%s', f.proc, pg_get_userbyid(f.proowner),
           case when f.powerful and f.reaching then '; its text changes tables or runs text of others' else ', who may write the guarded tables' end),
         format('revoke execute on function %s from %s', f.proc, case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
  from definers f, aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) a
  where a.grantee <> f.proowner and a.privilege_type = 'EXECUTE'
  union all
  select 'replica-session', a.grantee, array['boundary'], 'may set session_replication_role: what it writes then passes for copies of foreign changes',
         format('revoke set on parameter session_replication_role from %s', case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
  from given g, pg_parameter_acl p, aclexplode(p.paracl) a where g.copies and p.parname = 'session_replication_role' and a.privilege_type = 'SET'
)
select h.kind, r.rolname::text as subject, h.around,
       format('%s %s%s', r.rolname, h.why, case when x.first = 0 then '' else format(' (through %s%s)', pg_get_userbyid(x.first),
         case when p.admin_only then ', which it may give itself' else '' end) end) as why,
       case when x.first <> 0 then p.closes
            when h.kind = 'superuser' then format('alter role %I nosuperuser', r.rolname)
            -- A login that writes cannot lose its login: its tables have to go to another role.
            when h.kind in ('table-owner', 'schema-owner', 'boundary-owner') and r.rolname <> all ((select writers from given)::text[]) then format('alter role %I nologin', r.rolname)
            else h.closes end as closes,
       exists (select from pg_stat_activity s where s.usesysid = r.oid and s.datname = current_database() and s.backend_type = 'client backend'
                 and s.application_name not like 'homeregion%') as live
from holders h join reach x on x.holder = h.holder join pg_roles r on r.oid = x.role left join hops p on p.member = x.role and p.roleid = x.first
where h.kind = 'superuser' or not r.rolsuper
union all
select h.kind, 'public', h.around, 'every role ' || h.why, h.closes, true from holders h where h.holder = 0
union all
select 'apply-writer', r.rolname, array['boundary'], format('%s is a declared writer and a replication consumer: what it writes passes for copies of foreign changes', r.rolname),
       p.closes, true
from given g, reach x join pg_roles r on r.oid = x.role join hops p on p.member = x.role and p.roleid = x.first
where g.copies and x.holder = (select a.oid from pg_roles a where a.rolname = 'homeregion_apply') and not r.rolsuper and r.rolname = any (g.writers)
union all
select 'replica-session', coalesce(r.rolname, 'public'), array['boundary'],
       format('%s is given session_replication_role = replica with every session: what it writes passes for copies of foreign changes', coalesce(r.rolname, 'every role')),
       format('alter %s%s reset session_replication_role',
         case when r.oid is null then coalesce('database ' || quote_ident(d.datname), 'role all') else 'role ' || quote_ident(r.rolname) end,
         case when r.oid is not null and d.oid is not null then format(' in database %I', d.datname) else '' end), true
from given g, pg_db_role_setting s left join pg_database d on d.oid = s.setdatabase left join pg_roles r on r.oid = s.setrole, unnest(s.setconfig) c
where g.copies and c ~* '^session_replication_role=replica$' and (s.setdatabase = 0 or d.datname = current_database())
union all
select 'unguarded-table', c.oid::regclass::text, array['boundary', 'read-only'],
       format('%s has a column %I and no guard: add it to the guarded tables of the configuration, or accept it with a reason', c.oid::regclass, a.attname), null, true
from given g, pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid and not a.attisdropped and a.attnum > 0
where c.relkind in ('r', 'p', 'f') and c.relpersistence <> 't' and a.attname = any (g.key_columns) and c.oid not in (select oid from tree)
  and n.nspname not in ('pg_catalog', 'information_schema', 'homeregion', 'homeregion_control') and n.nspname !~ '^pg_'
  and c.oid <> all (select to_regclass(o)::oid from unnest(g.open_relations) o where to_regclass(o) is not null)
order by 1, 2, 3, 4
