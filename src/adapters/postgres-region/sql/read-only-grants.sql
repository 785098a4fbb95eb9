-- Every privilege to write the guarded tables that somebody was granted: tables, columns, partitions and children, and views that write as their
-- owner. $1: quoted names of the tables, $2: of the outbox, $3: its column of publication or null, $4: declared writers, $5: whether copies of
-- foreign changes are written here. The owners' own privileges are not among them: they could give them back to themselves.
with recursive roots as (
  select to_regclass(n)::oid as oid from unnest($1::text[]) n where to_regclass(n) is not null
), tree as (
  select oid from roots union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
), seen as (
  select oid from tree
  union
  select v.oid from seen join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = seen.oid and d.classid = 'pg_rewrite'::regclass
  join pg_rewrite w on w.oid = d.objid join pg_class v on v.oid = w.ev_class and v.relkind = 'v'
), relations as (
  select c.oid, format('"%s"."%s"', replace(n.nspname, '"', '""'), replace(c.relname, '"', '""')) as name, n.oid as namespace, c.relowner, c.relacl
  from seen join pg_class c on c.oid = seen.oid join pg_namespace n on n.oid = c.relnamespace
  where c.relkind <> 'v' or (pg_relation_is_updatable(c.oid, true) <> 0 and coalesce(c.reloptions::text, '') !~ 'security_invoker=(true|on|1)')
), granted as (
  select r.*, null::name as col, null::int2 as col_number, a.grantee, a.grantor, a.privilege_type, a.is_grantable from relations r, aclexplode(r.relacl) a
  where a.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')
  union all
  select r.*, t.attname, t.attnum, a.grantee, a.grantor, a.privilege_type, a.is_grantable
  from relations r join pg_attribute t on t.attrelid = r.oid and not t.attisdropped, aclexplode(t.attacl) a
  where a.privilege_type in ('INSERT', 'UPDATE')
)
select g.oid::text as relation_oid, g.name as relation, g.col::text as column, g.col_number as column_number, g.grantee::text as grantee_oid, g.grantor::text as grantor_oid,
       case when g.grantee <> 0 then pg_get_userbyid(g.grantee)::text end as grantee, pg_get_userbyid(g.grantor)::text as grantor,
       g.grantor = g.relowner as by_owner, g.privilege_type as privilege, g.is_grantable as grantable,
       case
         when g.grantee = 0 then null
         when t.rolname = any ($4::text[]) then null
         when t.rolsuper then 'superuser'
         when t.rolname = 'homeregion_owner' then 'boundary'
         when $5 and pg_has_role(g.grantee, (select a.oid from pg_roles a where a.rolname = 'homeregion_apply'), 'MEMBER') then 'copies'
       end as spared_grantee,
       g.col is not null and g.col = $3 and g.privilege_type = 'UPDATE' and g.oid = to_regclass($2) as publication,
       -- A grant is made and taken back by its grantor alone; PostgreSQL takes whoever has the owner's rights for the owner.
       case
         when g.grantor = g.relowner then me.rolsuper or pg_has_role(me.oid, g.relowner, 'USAGE')
         else not o.rolsuper and not pg_has_role(g.grantor, g.relowner, 'USAGE') and has_schema_privilege(g.grantor, g.namespace, 'USAGE')
              and (me.rolsuper or pg_has_role(me.oid, g.grantor, case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end))
       end as reachable
from granted g join pg_roles me on me.rolname = current_user join pg_roles o on o.oid = g.grantor left join pg_roles t on t.oid = g.grantee
where g.grantee <> g.relowner
order by g.name, g.col nulls first, t.rolname nulls first, g.privilege_type, o.rolname
