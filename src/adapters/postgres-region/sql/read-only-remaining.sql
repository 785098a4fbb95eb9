-- Who can still write the guarded tables by privilege, and as whom. $1: quoted names of the tables, $2: of the outbox, $3: its column of
-- publication or null, $4: declared writers, $5: whether copies of foreign changes are written here. `spared`: the fence leaves it open on purpose.
with recursive roots as (
  select to_regclass(n)::oid as oid from unnest($1::text[]) n where to_regclass(n) is not null
), tree as (
  select oid from roots union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
), tables as (
  select c.oid, format('"%s"."%s"', replace(n.nspname, '"', '""'), replace(c.relname, '"', '""')) as name, c.relowner from tree join pg_class c on c.oid = tree.oid join pg_namespace n on n.oid = c.relnamespace
), holders as (
  select h.oid, h.rolname, h.rolsuper, array_agg(t.name order by t.name) as tables, array_agg(distinct t.relowner) as owners
  from tables t, pg_roles h
  where not h.rolsuper and (
    has_table_privilege(h.oid, t.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
    or exists (
      select from pg_attribute a where a.attrelid = t.oid and not a.attisdropped and a.attacl is not null
        and (has_column_privilege(h.oid, t.oid, a.attnum, 'INSERT')
             or (has_column_privilege(h.oid, t.oid, a.attnum, 'UPDATE') and not (t.oid = to_regclass($2) and a.attname is not distinct from $3::name)))))
  group by h.oid, h.rolname, h.rolsuper
  union all
  select h.oid, h.rolname, true, '{}', '{}' from pg_roles h where h.rolsuper
), reached as (
  select r.oid, r.rolname, r.rolsuper, r.rolcanlogin, h.oid as holder, h.rolname as holder_name, h.tables, h.owners, h.rolsuper as holder_super
  from holders h join pg_roles r on r.oid = h.oid
    or (r.rolcanlogin and not r.rolsuper and case when current_setting('server_version_num')::int >= 160000
          then pg_has_role(r.oid, h.oid, 'USAGE') or pg_has_role(r.oid, h.oid, 'SET') else pg_has_role(r.oid, h.oid, 'MEMBER') end)
)
select x.rolname::text as role, x.rolcanlogin as can_login, case when x.holder <> x.oid then x.holder_name::text end as through, x.tables,
       case
         when x.rolname = any ($4::text[]) then null
         when x.rolsuper then 'superuser'
         when x.holder <> x.oid then
           case when $5 and x.holder_name in ('homeregion_apply') then 'copies' end
         when x.owners = array[x.oid] then 'owner'
         when x.rolname = 'homeregion_owner' then 'boundary'
         when $5 and pg_has_role(x.oid, (select a.oid from pg_roles a where a.rolname = 'homeregion_apply'), 'MEMBER') then 'copies'
       end as spared
from reached x
where x.rolcanlogin or x.owners = array[x.oid]
order by x.rolname, through nulls first
