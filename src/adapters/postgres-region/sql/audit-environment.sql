-- What writes the guarded tables in somebody's stead, whatever logins and privileges of the one who asks: constraints, rules and triggers of other
-- tables, subscriptions, other servers, workers; and what would keep the guard off what is made later.
, outside as (
  select c.oid, c.oid::regclass::text as name, c.relowner from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.relkind in ('r', 'p', 'v', 'f') and c.oid not in (select oid from tree) and n.nspname not in ('pg_catalog', 'information_schema', 'homeregion')
)
select 'cascade' as kind, o.name as subject, array['credentials', 'read-only'] as around,
       format('%s of a row of %s changes %s with its owner''s rights (constraint %s): guard %s too', case when k.confdeltype in ('c', 'n', 'd') then 'DELETE' else 'UPDATE' end,
         o.name, k.conrelid::regclass, quote_ident(k.conname), o.name) as why,
       format('alter table %s drop constraint %I', k.conrelid::regclass, k.conname) as closes, false as live
from pg_constraint k join tree on tree.oid = k.conrelid join outside o on o.oid = k.confrelid
where k.contype = 'f' and k.conparentid = 0 and (k.confdeltype in ('c', 'n', 'd') or k.confupdtype in ('c', 'n', 'd'))
union all
select distinct 'rule', o.name, array['credentials', 'read-only'], format('a write to %s writes %s too, with its owner''s rights (rule %I)', o.name, d.refobjid::regclass, w.rulename),
       format('drop rule %I on %s', w.rulename, o.name), false
from pg_rewrite w join outside o on o.oid = w.ev_class join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
join tree on tree.oid = d.refobjid
where w.ev_type <> '1'
union all
select 'definer-trigger', o.name, case when p.powerful then array['credentials', 'read-only'] else array['credentials'] end,
       format('a write to %s runs %s as %s, who may write the guarded tables', o.name, t.tgfoid::regprocedure, pg_get_userbyid(p.proowner)),
       format('drop trigger %I on %s', t.tgname, o.name), false
from pg_trigger t join outside o on o.oid = t.tgrelid cross join lateral (
  select f.proowner, (select r.rolsuper from pg_roles r where r.oid = f.proowner) or exists (select from tables g where pg_has_role(f.proowner, g.relowner, 'MEMBER'))
           or pg_has_role(f.proowner, (select w.oid from pg_roles w where w.rolname = 'pg_write_all_data'), 'MEMBER') as powerful
  from pg_proc f join pg_namespace n on n.oid = f.pronamespace where f.oid = t.tgfoid and f.prosecdef and n.nspname not in ('pg_catalog', 'homeregion')
) p
where not t.tgisinternal and t.tgparentid = 0 and t.tgenabled <> 'D' and (p.powerful or exists (
  select from tables g where has_table_privilege(p.proowner, g.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') or has_any_column_privilege(p.proowner, g.oid, 'INSERT, UPDATE')))
union all
select 'subscription', s.subname::text, array['credentials', 'read-only'],
       format('applies changes of another database to %s as %s: no login, and no privilege that is revoked', (
         select string_agg(r.srrelid::regclass::text, ', ') from pg_subscription_rel r join tree on tree.oid = r.srrelid where r.srsubid = s.oid), pg_get_userbyid(s.subowner)),
       format('alter subscription %I disable', s.subname), false
from pg_subscription s
where s.subenabled and s.subdbid = (select d.oid from pg_database d where d.datname = current_database())
  and exists (select from pg_subscription_rel r join tree on tree.oid = r.srrelid where r.srsubid = s.oid)
union all
select 'foreign-server', m.srvname::text, array['credentials', 'read-only'],
       format('holds logins for %s at another server, which may be this one again', string_agg(m.usename::text, ', ' order by m.usename)),
       string_agg(format('drop user mapping for %s server %I', case when m.umuser = 0 then 'public' else quote_ident(m.usename) end, m.srvname), '; ' order by m.usename), false
from pg_user_mappings m group by m.srvname
union all
select 'extension', e.extname::text, case when e.extname in ('pg_cron', 'pg_background', 'pgagent', 'timescaledb') then array['credentials', 'read-only'] else array['credentials'] end,
       case when e.extname in ('pg_cron', 'pg_background', 'pgagent', 'timescaledb') then format('%s runs statements in the background as roles of its choice, without a login', e.extname)
            when e.extname in ('dblink', 'postgres_fdw') then format('%s opens sessions from the server itself, with logins that are kept or given there', e.extname)
            else format('%s lets functions act as the server''s own user, beyond any privilege', e.extname) end,
       format('drop extension %I', e.extname), false
from pg_extension e
where e.extname in ('pg_cron', 'pg_background', 'pgagent', 'timescaledb', 'dblink', 'postgres_fdw', 'adminpack', 'file_fdw', 'plperlu', 'plpython3u', 'plpython2u', 'pltclu', 'plsh')
union all
select 'background-worker', a.backend_type, array['credentials', 'read-only'],
       format('%s runs in this server%s; what it writes is not seen from here', a.backend_type, coalesce(' as ' || string_agg(distinct a.usename::text, ', '), '')), null, true
from pg_stat_activity a
where a.backend_type not in ('client backend', 'autovacuum launcher', 'autovacuum worker', 'logical replication launcher', 'checkpointer', 'background writer', 'walwriter', 'archiver',
  'walsender', 'startup', 'walreceiver', 'walsummarizer', 'io worker', 'slotsync worker', 'standalone backend', 'parallel worker')
  and a.backend_type !~ '^logical replication ' and (a.datname is null or a.datname = current_database())
group by a.backend_type
union all
select 'event-trigger', e.evtname::text, case when p.prosecdef then array['credentials', 'read-only'] else '{}' end,
       format('runs %s at %s%s', e.evtfoid::regprocedure, e.evtevent, case when p.prosecdef then format(' as %s', pg_get_userbyid(p.proowner)) else ' as whoever makes the change' end),
       format('alter event trigger %I disable', e.evtname), false
from pg_event_trigger e join pg_proc p on p.oid = e.evtfoid
where e.evtname <> 'homeregion_partitions' and e.evtenabled <> 'D'
union all
select 'later-partitions', 'homeregion_partitions', '{}', 'the event trigger that guards partitions when they are made '
         || case when e.oid is null then 'is not there (a superuser has to run homeregion init)' else 'is not always on' end || ': TRUNCATE of one made later is not refused until homeregion init is run again',
       case when e.oid is not null then 'alter event trigger homeregion_partitions enable always' end, false
from (select 1) one left join pg_event_trigger e on e.evtname = 'homeregion_partitions'
where e.evtenabled is distinct from 'A' and exists (select from tables t where t.relkind = 'p')
order by 1, 2, 4
