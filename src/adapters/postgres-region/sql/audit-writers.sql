-- Who can write the guarded tables by privilege: what the fence of some logins' credentials does not hold, and what a revocation does not. All of
-- it meets the guard.
, views as (
  select oid from tree
  union
  select v.oid from views join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = views.oid and d.classid = 'pg_rewrite'::regclass
  join pg_rewrite w on w.oid = d.objid join pg_class v on v.oid = w.ev_class and v.relkind = 'v'
), relations as (
  select c.oid, c.oid::regclass::text as name, c.relowner, c.relacl from views join pg_class c on c.oid = views.oid
  where c.relkind <> 'v' or (pg_relation_is_updatable(c.oid, true) <> 0 and coalesce(c.reloptions::text, '') !~ 'security_invoker=(true|on|1)')
), entries as (
  select r.oid, r.name, r.relowner, null::name as col, a.grantee, a.grantor, a.privilege_type as privilege, a.is_grantable
  from relations r, aclexplode(r.relacl) a where a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
  union all
  select r.oid, r.name, r.relowner, t.attname, a.grantee, a.grantor, a.privilege_type, a.is_grantable
  from given g, relations r join pg_attribute t on t.attrelid = r.oid and not t.attisdropped, aclexplode(t.attacl) a
  where a.privilege_type in ('INSERT', 'UPDATE') and not (r.oid is not distinct from g.outbox and t.attname is not distinct from g.published_at and a.privilege_type = 'UPDATE')
), statements as (
  select e.grantee, string_agg(e.text, '; ' order by e.text) as closes from (
    select e.grantee,
           format(case when e.grantor = e.relowner then '%2$s' else 'set role %1$I; %2$s; reset role' end, pg_get_userbyid(e.grantor),
             format('revoke %s on %s from %s%s',
               string_agg(lower(e.privilege) || case when e.col is null then '' else format(' (%I)', e.col) end, ', ' order by e.privilege, e.col), e.name,
               case when e.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(e.grantee)) end, case when bool_or(e.is_grantable) then ' cascade' else '' end)) as text
    from entries e group by e.grantee, e.grantor, e.relowner, e.name, e.col is null
  ) e group by e.grantee
), granted as (
  select e.grantee, s.closes, format('%s on %s%s', string_agg(distinct e.privilege, ', '),
           case when count(distinct e.name) > 3 then format('%s and %s more', min(e.name), count(distinct e.name) - 1) else string_agg(distinct e.name, ', ') end,
           case when bool_or(e.col is not null) then ', some by column' else '' end) as what
  from entries e join boundary b on e.grantee not in (e.relowner, b.oid) join statements s using (grantee) group by e.grantee, s.closes
), logins as (
  select r.oid, r.rolname from given g, pg_roles r where r.rolcanlogin and not r.rolsuper and r.rolname <> all (g.covered) and r.oid not in (select role from applying)
)
select case when x.first = 0 then 'other-writer' else 'member' end as kind, l.rolname::text as subject, array['credentials'] as around,
       format('%s may %s%s', l.rolname, w.what, case when x.first = 0 then ' with a login of its own'
         else format(' as %s%s', pg_get_userbyid(x.holder), case when p.admin_only then ', which it may make itself' else '' end) end) as why,
       case when x.first = 0 then w.closes else p.closes end as closes, false as live
from granted w join reach x on x.holder = w.grantee join logins l on l.oid = x.role left join hops p on p.member = x.role and p.roleid = x.first
union all
select 'public-writer', 'public', array['credentials'], format('every role that can log in may %s', w.what), w.closes, false from granted w where w.grantee = 0
union all
select 'write-all-data', r.rolname, array['credentials', 'read-only'], format('%s may write every table by pg_write_all_data, which no revocation takes away', r.rolname), p.closes, false
from reach x join pg_roles r on r.oid = x.role join hops p on p.member = x.role and p.roleid = x.first
where x.holder = (select w.oid from pg_roles w where w.rolname = 'pg_write_all_data') and not r.rolsuper
union all
select 'default-privileges', coalesce(e.rolname, 'public'), array['credentials', 'read-only'],
       format('%s will be given %s on each table that %s makes%s: a partition made later is open to it', coalesce(e.rolname, 'every role'),
         string_agg(distinct a.privilege_type, ', '), o.rolname, case when n.oid is null then '' else format(' in schema %I', n.nspname) end),
       format('alter default privileges for role %I%s revoke %s on tables from %s', o.rolname, case when n.oid is null then '' else format(' in schema %I', n.nspname) end,
         lower(string_agg(distinct a.privilege_type, ', ')), coalesce(quote_ident(e.rolname), 'public')), false
from pg_default_acl d join pg_roles o on o.oid = d.defaclrole left join pg_namespace n on n.oid = d.defaclnamespace, aclexplode(d.defaclacl) a left join pg_roles e on e.oid = a.grantee
where d.defaclobjtype = 'r' and a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE') and a.grantee <> d.defaclrole and e.rolsuper is not true
  and a.grantee not in (select role from applying) and exists (select from tables t where t.relowner = d.defaclrole and (n.oid is null or n.oid = t.relnamespace))
group by e.rolname, o.rolname, n.oid, n.nspname
union all
select 'bypass-rls', r.rolname, '{}', format('%s has BYPASSRLS: the row security of %s does not hold it; the boundary does not stand on that', r.rolname, (select string_agg(t.name, ', ') from tables t where t.relrowsecurity)),
       format('alter role %I nobypassrls', r.rolname), false
from pg_roles r where r.rolbypassrls and r.rolcanlogin and not r.rolsuper and exists (select from tables t where t.relrowsecurity)
order by 1, 2, 4
