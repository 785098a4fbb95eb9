-- Who holds a lock on the tables ($1: quoted names) that a write takes: sessions, and prepared transactions, which have no process. `fenced`: it
-- acts, or can act, as a role whose privileges were revoked ($2: the roles, $3: PUBLIC too), so that a commit of what it wrote is not wanted.
-- $4: declared writers, $5: whether copies of foreign changes are written here.
with recursive roots as (
  select to_regclass(n)::oid as oid from unnest($1::text[]) n where to_regclass(n) is not null
), tree as (
  select oid from roots union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
), held as (
  select l.pid, l.virtualtransaction, string_agg(distinct l.relation::regclass::text, ', ') as tables
  from pg_locks l join tree on tree.oid = l.relation
  where l.locktype = 'relation' and l.granted and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and l.pid is distinct from pg_backend_pid()
    and l.mode in ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  group by 1, 2
)
select h.pid, s.backend_start::text as since, p.gid::text, coalesce(p.owner, s.usename)::text as role, h.tables,
       coalesce(s.state, case when h.pid is null then 'prepared' else s.backend_type end, 'unknown') as state,
       h.pid is not null and s.backend_type = 'client backend' and coalesce(
         r.rolname = any ($4::text[])
         or (not r.rolsuper and r.rolname <> 'homeregion_owner'
             and not ($5 and pg_has_role(r.oid, (select a.oid from pg_roles a where a.rolname = 'homeregion_apply'), 'MEMBER'))
             and not exists (select from tree join pg_class c on c.oid = tree.oid where c.relowner = r.oid)
             and ($3 or exists (select from pg_roles f where f.rolname = any ($2::text[]) and pg_has_role(r.oid, f.oid, 'MEMBER')))), false) as fenced
from held h
left join pg_stat_activity s on s.pid = h.pid
left join pg_roles r on r.oid = s.usesysid
left join pg_locks x on h.pid is null and x.locktype = 'transactionid' and x.pid is null and x.virtualtransaction = h.virtualtransaction
left join pg_prepared_xacts p on p.transaction = x.transactionid
order by 1 nulls first, 2
