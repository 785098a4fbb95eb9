-- @ The fence writes its barrier event into the outbox as the owner role, and through the guard.
do $do$
declare
  s regclass;
begin
  execute format('grant usage on schema %I to homeregion_owner', {{outbox_schema}});
  execute {{grant_outbox}};
  for s in
    select d.objid::regclass from pg_depend d join pg_class c on c.oid = d.objid and c.relkind = 'S'
    where d.refobjid = {{outbox_literal}}::regclass and d.classid = 'pg_class'::regclass and d.deptype = 'a'
  loop
    execute format('grant usage on sequence %s to homeregion_owner', s);
  end loop;
end $do$
