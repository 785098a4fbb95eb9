-- What a read-only fence keeps on record, and what has become of it: names as they are now, null for what is gone. $1: region, $2: fence.
-- By number, so that a renamed table or role is found, whoever has its name now; by name only where the number is gone because a restore or a
-- migration made it anew. `told`: what the reader of a lift has to know of that.
with items as (
  select i.item, f.* from homeregion.fence_item i, jsonb_to_record(i.former) as f(
    kind text, relation text, "relationOid" oid, "column" text, "columnNumber" int, grantee text, "granteeOid" oid, grantor text, "grantorOid" oid, "byOwner" boolean,
    privilege text, grantable boolean)
  where i.region = $1 and i.name = $2
), found as (
  select i.*, c.oid as now_oid, c.relowner, c.relnamespace, case when c.oid is not null then format('"%s"."%s"', replace(n.nspname, '"', '""'), replace(c.relname, '"', '""')) end as now_name, n.oid as namespace,
         e.oid as now_grantee, e.rolname as now_grantee_name, case when i."byOwner" then c.relowner else g.oid end as now_grantor, g.rolname as now_grantor_name,
         t.attname::text as now_column
  from items i
  left join pg_class c on c.oid = coalesce((select x.oid from pg_class x where x.oid = i."relationOid" and x.relkind in ('r', 'p', 'f', 'v')), to_regclass(i.relation))
  left join pg_namespace n on n.oid = c.relnamespace
  left join pg_attribute t on t.attrelid = c.oid and not t.attisdropped
    and case when c.oid = i."relationOid" and i."columnNumber" is not null then t.attnum = i."columnNumber" else t.attname = i.column end
  left join pg_roles e on e.oid = coalesce((select x.oid from pg_roles x where x.oid = i."granteeOid"), (select x.oid from pg_roles x where x.rolname = i.grantee))
  left join pg_roles g on g.oid = coalesce((select x.oid from pg_roles x where x.oid = i."grantorOid"), (select x.oid from pg_roles x where x.rolname = i.grantor))
)
select f.item, f.kind, coalesce(f.now_name, f.relation) as relation, f."relationOid"::text as relation_oid, coalesce(f.now_column, f.column) as column, f."columnNumber" as column_number,
       case when f.grantee is not null then coalesce(f.now_grantee_name::text, f.grantee) end as grantee, f."granteeOid"::text as grantee_oid,
       coalesce(f.now_grantor_name::text, f.grantor) as grantor, f."grantorOid"::text as grantor_oid, f."byOwner" as by_owner, f.privilege, f.grantable,
       case
         when f.now_oid is null then format('%s is gone', f.relation)
         when f.column is not null and f.now_column is null then format('column %I of %s is gone', f.column, f.relation)
         when f.grantee is not null and f.now_grantee is null then format('role %I is gone', f.grantee)
         when f.now_grantee = f.relowner then format('%s belongs to %I now', f.relation, f.now_grantee_name)
         when f.now_grantor is null then format('role %I, who gave it, is gone', f.grantor)
       end as gone,
       -- Nobody misses it: what it was for, or whoever had it, is not there any more, or owns the table.
       f.now_oid is null or (f.column is not null and f.now_column is null) or (f.grantee is not null and f.now_grantee is null)
         or f.now_grantee is not distinct from f.relowner as moot,
       nullif(concat_ws('; ',
         case when f.now_oid <> f."relationOid" then format('%s was made anew, and is taken by its name', f.relation)
              when to_regclass(f.relation) <> f.now_oid then format('%s is called %s now, and another has its old name', f.relation, f.now_name)
              when f.now_name <> f.relation then format('%s is called %s now', f.relation, f.now_name) end,
         case when f.now_column <> f.column then format('column %I of %s is called %I now', f.column, f.now_name, f.now_column) end,
         case when f.now_grantee <> f."granteeOid" then format('role %I was made anew, and is taken by its name', f.grantee)
              when f.now_grantee_name <> f.grantee then format('role %I is called %I now', f.grantee, f.now_grantee_name) end,
         case when f."byOwner" then null
              when g.oid <> f."grantorOid" then format('role %I was made anew, and is taken by its name', f.grantor)
              when f.now_grantor_name <> f.grantor then format('role %I is called %I now', f.grantor, f.now_grantor_name) end), '') as told,
       case
         when f."byOwner" then me.rolsuper or pg_has_role(me.oid, f.relowner, 'USAGE')
         else not g.rolsuper and not pg_has_role(g.oid, f.relowner, 'USAGE') and has_schema_privilege(g.oid, f.namespace, 'USAGE')
              and (me.rolsuper or pg_has_role(me.oid, g.oid, case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end))
       end is true as reachable,
       exists (
         select from pg_class c left join pg_attribute t on t.attrelid = c.oid and t.attname = f.now_column and not t.attisdropped,
                aclexplode(case when f.column is null then c.relacl else t.attacl end) a
         where c.oid = f.now_oid and a.grantee = case when f.grantee is null then 0 else f.now_grantee end and a.grantor = f.now_grantor and a.privilege_type = f.privilege
           and (a.is_grantable or not f.grantable)
       ) as standing
from found f join pg_roles me on me.rolname = current_user left join pg_roles g on g.oid = f.now_grantor
order by 3, 5 nulls first, 6 nulls first, 11, 8
