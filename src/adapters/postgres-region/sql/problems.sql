with recursive wanted as (
  select * from pg_catalog.jsonb_to_recordset($1::jsonb) as w(relation text, plain text, name name, event text, func name, enabled "char")
), roots as (
  select distinct relation, plain, to_regclass(relation)::oid as oid from wanted
), tree as (
  select r.relation, r.oid, false as is_part from roots r where r.oid is not null
  union select t.relation, i.inhrelid, c.relispartition from tree t join pg_inherits i on i.inhparent = t.oid join pg_class c on c.oid = i.inhrelid
), standing as (
  select t.oid as table_oid, w.name, w.event, w.func, w.enabled as should, x.tgenabled as is_now, x.oid as trigger_oid, x.tgtype, p.proname, n.nspname,
         x.tgqual is not null or x.tgattr::text <> '' as limited
  from tree t join wanted w using (relation)
  left join pg_trigger x on x.tgrelid = t.oid and x.tgname = w.name
  left join pg_proc p on p.oid = x.tgfoid left join pg_namespace n on n.oid = p.pronamespace
), functions as (
  select f.name, f.md5, p.oid, pg_catalog.md5(p.prosrc) as is_now, p.proowner, p.prosecdef
  from pg_catalog.jsonb_to_recordset($2::jsonb) as f(name name, md5 text)
  left join pg_proc p on p.proname = f.name and p.pronamespace = to_regnamespace('homeregion')
)
select pg_catalog.format('table %s does not exist', plain) as problem from roots where oid is null
union all
select pg_catalog.format('%s: guard %s is missing', table_oid::regclass, name) from standing where trigger_oid is null
union all
select pg_catalog.format('%s: guard %s is %s', table_oid::regclass, name,
  case is_now when 'D' then 'disabled' when 'O' then 'off in replica sessions' when 'R' then 'on in replica sessions only' else 'set to fire always' end)
from standing where trigger_oid is not null and is_now <> should
union all
select pg_catalog.format('%s: guard %s does not run homeregion.%s for every row', table_oid::regclass, name, func)
from standing where trigger_oid is not null and (proname <> func or nspname <> 'homeregion' or limited)
union all
select pg_catalog.format('%s: trigger %s runs after the guard and can change the row', t.oid::regclass, x.tgname)
from tree t join pg_trigger x on x.tgrelid = t.oid
where x.tgtype & 3 = 3 and x.tgtype & 20 <> 0 and not x.tgisinternal and x.tgenabled <> 'D' and x.tgname::text collate "C" > 'zzz_homeregion_'
  and x.tgname not in (select name from wanted)
union all
select pg_catalog.format('%s has rewrite rules, which can replace a guarded write', t.oid::regclass) from tree t join pg_class c on c.oid = t.oid where c.relkind = 'r' and c.relhasrules
union all
select pg_catalog.format('%s is UNLOGGED: a crash empties it', t.oid::regclass) from tree t join pg_class c on c.oid = t.oid where c.relpersistence = 'u'
union all
select pg_catalog.format('%s is a foreign table: its writes go elsewhere', t.oid::regclass) from tree t join pg_class c on c.oid = t.oid where c.relkind = 'f'
union all
select pg_catalog.format('function homeregion.%s is missing', name) from functions where oid is null
union all
select pg_catalog.format('function homeregion.%s was changed after its installation', name) from functions where oid is not null and is_now <> md5
union all
select pg_catalog.format('function homeregion.%s belongs to %s', name, pg_catalog.pg_get_userbyid(proowner)) from functions
where oid is not null and pg_catalog.pg_get_userbyid(proowner) <> 'homeregion_owner'
union all
select pg_catalog.format('homeregion.%s: trigger %s is missing or disabled', n.relation, n.name)
from (
  select * from (values ('ownership', 'zzz_homeregion_ownership', 'A'::"char"), ('ownership', 'zzz_homeregion_truncate', 'A')) v(relation, name, enabled)
  -- Only where each region has its own database.
  union all select 'ownership', 'zzz_homeregion_left', 'A' from functions f where f.name = 'key_left'
  -- Only where writes stop with a lease.
  union all select 'lease', 'homeregion_lease_told', 'A' from functions f where f.name = 'lease_told'
  union all select 'commit_check', 'homeregion_commit_check', 'O' from functions f where f.name = 'check_at_commit'
) n
where to_regclass('homeregion.ownership') is not null
  and not exists (
    select from pg_trigger x where x.tgrelid = to_regclass(pg_catalog.format('homeregion.%I', n.relation)) and x.tgname = n.name and x.tgenabled = n.enabled
  )
order by 1
