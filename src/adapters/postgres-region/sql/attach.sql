-- One configured table.

-- @ Stands the guard on {{relation}}: every trigger that is missing or different is made anew, in this transaction, so that no write meets a gap.
do $do$
declare
  t regclass := {{relation_literal}}::regclass;
  wanted jsonb := {{triggers}}::jsonb;
  kind text := {{kind}};
  key_column name := {{key_name}};
  problem text;
  g record;
begin
  select case
    when c.relkind not in ('r', 'p') then 'is no table'
    when c.relpersistence <> 'p' then 'is UNLOGGED or temporary: a crash empties it'
    when a.attnum is null then format('has no column %I', key_column)
    when not a.attnotnull then format('column %I has to be NOT NULL: a row without a key has no home', key_column)
    when a.attgenerated <> '' then format('column %I is GENERATED: the guard would see it empty', key_column)
    when coalesce(nullif(y.typbasetype, 0), y.oid)::regtype not in ('text'::regtype, 'character varying'::regtype, 'bigint'::regtype, 'integer'::regtype, 'uuid'::regtype)
      then format('column %I is %s; a key is text, bigint or uuid', key_column, a.atttypid::regtype)
    when kind = 'statement' and (c.relkind = 'p' or c.relispartition or exists (select from pg_inherits i where t in (i.inhparent, i.inhrelid)))
      then 'is partitioned or inherits: statement triggers do not reach its parts, use guard: row'
    when kind = 'outbox' and exists (select from pg_attribute x where x.attrelid = t and x.attnum > 0 and x.attgenerated <> '')
      then 'has generated columns, which an outbox may not have'
  end into problem
  from pg_class c
  left join pg_attribute a on a.attrelid = c.oid and a.attname = key_column and not a.attisdropped
  left join pg_type y on y.oid = a.atttypid
  where c.oid = t;
  if problem is not null then raise exception 'homeregion: % %', t, problem using errcode = 'HR006'; end if;

  insert into homeregion.guarded (relation, key_column, kind) values (t, key_column, kind)
  on conflict (relation) do update set key_column = excluded.key_column, kind = excluded.kind;

  -- What an earlier configuration had here and this one has not.
  for g in
    with recursive tree as (
      select t::oid as oid union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
    )
    select x.tgrelid::regclass as relation, x.tgname
    from tree join pg_trigger x on x.tgrelid = tree.oid
    where x.tgname like 'zzz\_homeregion\_%' and x.tgparentid = 0 and x.tgname not in (select w.name from jsonb_to_recordset(wanted) as w(name name))
  loop
    execute format('drop trigger %I on %s', g.tgname, g.relation);
  end loop;

  for g in
    with recursive tree as (
      select c.oid, false as is_part from pg_class c where c.oid = t
      union select i.inhrelid, c.relispartition from tree join pg_inherits i on i.inhparent = tree.oid join pg_class c on c.oid = i.inhrelid
    )
    select tree.oid::regclass as relation, w.*
    -- Partitions get the row triggers of their table by themselves; TRUNCATE triggers are never passed on.
    from tree, jsonb_to_recordset(wanted) as w(name name, event text, level text, func name, enabled "char")
    where not tree.is_part or w.event = 'before truncate'
  loop
    if not exists (
      select from pg_trigger x join pg_proc p on p.oid = x.tgfoid join pg_namespace n on n.oid = p.pronamespace
      where x.tgrelid = g.relation and x.tgname = g.name and p.proname = g.func and n.nspname = 'homeregion'
    ) then
      execute format('drop trigger if exists %I on %s', g.name, g.relation);
      execute format('create %s %I %s on %s %s execute function homeregion.%I()',
        case when g.level like 'deferrable %' then 'constraint trigger' else 'trigger' end, g.name, g.event, g.relation, g.level, g.func);
    end if;
  end loop;

  for g in
    with recursive tree as (
      select t::oid as oid union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
    )
    select x.tgrelid::regclass as relation, w.name, w.enabled
    from tree join pg_trigger x on x.tgrelid = tree.oid join jsonb_to_recordset(wanted) as w(name name, enabled "char") on w.name = x.tgname
    where x.tgenabled <> w.enabled
  loop
    execute format('alter table only %s enable %s trigger %I', g.relation, case g.enabled when 'A' then 'always' when 'R' then 'replica' else '' end, g.name);
  end loop;
end $do$
