-- The boundary's own roles, tables and counters. A statement begins at "-- @ why"; {{…}} is filled in by boundary-sql.ts with quoted text.

-- @ Owns the boundary and nothing else. Nobody can log in as it, and nobody may be a member of it: whoever acts as it can replace the guard.
do $do$ begin
  if not exists (select from pg_catalog.pg_roles where rolname = 'homeregion_owner') then create role homeregion_owner nologin; end if;
end $do$

-- @ Members of this role are replication consumers: they may write copies of keys whose home is elsewhere, and nothing else.
do $do$ begin
  if not exists (select from pg_catalog.pg_roles where rolname = 'homeregion_apply') then create role homeregion_apply nologin; end if;
end $do$

-- @ An administrator who is no superuser acts as the owner role for this transaction only; it is taken back at the end.
do $do$ begin
  if not (select rolsuper from pg_catalog.pg_roles where rolname = current_user) then
    execute pg_catalog.format('grant homeregion_owner to %I', current_user);
    execute pg_catalog.format('grant create on database %I to homeregion_owner', pg_catalog.current_database());
  end if;
end $do$

-- @ Shows the boundary who holds a key's lock and since when; pg_stat_activity hides that from ordinary roles.
do $do$ begin
  grant pg_read_all_stats to homeregion_owner;
exception when insufficient_privilege then
  raise notice 'homeregion: pg_read_all_stats could not be granted to homeregion_owner; reports of writes in flight will lack their age';
end $do$

-- @ Everything of the boundary lives in one schema.
create schema if not exists homeregion authorization homeregion_owner

-- @ From here on as the owner.
set local role homeregion_owner

-- @ Which region this database is, and which boundary was installed. One row.
create table if not exists homeregion.installed (
  only_row     boolean primary key default true check (only_row),
  region       text not null,
  version      integer not null,
  config_hash  text not null,
  installed_at timestamptz not null default pg_catalog.clock_timestamp()
)

-- @ This region's copy of ownership. `token` is the highest run token seen: smaller ones are refused. `drained_by` and `drained_under`
-- @ tell the transactions that had begun to write before a drain from those that had not, for as long as the server runs.
create table if not exists homeregion.ownership (
  key              text collate pg_catalog."C" primary key,
  home_region      text not null,
  epoch            bigint not null check (epoch > 0),
  state            text not null check (state in ('ACTIVE', 'DRAINING', 'FENCED', 'CATCH_UP')),
  token            bigint not null default 0,
  barrier_event_id text,
  require_epoch    boolean not null default false,
  drained_by       xid8,
  drained_under    timestamptz,
  changed_at       timestamptz not null default pg_catalog.clock_timestamp()
)

-- @ Exactly the keys that may be written here now: the one row the guard looks for. Derived from ownership by a trigger and by nothing else.
create table if not exists homeregion.writable (
  key           text collate pg_catalog."C" primary key,
  epoch         bigint not null,
  require_epoch boolean not null{{writable_home}}
)

-- @ Tables the boundary stands on, as configured.
create table if not exists homeregion.guarded (
  relation   regclass primary key,
  key_column name not null,
  kind       text not null check (kind in ('row', 'statement', 'outbox'))
)

-- @ Fences of the whole region that stand here, or that a process left half-done. A fence that is lifted has no row.
create table if not exists homeregion.fence (
  region     text not null,
  name       text not null,
  kind       text not null,
  state      text not null check (state in ('applying', 'applied', 'lifting')),
  reason     text not null,
  applied_by text not null,
  run_id     text,
  since      timestamptz not null default pg_catalog.clock_timestamp(),
  primary key (region, name)
)

-- @ Which wish for the fence this is: the microsecond at which it was last asked for, and always more than before, so that a lift which was allowed
-- @ for one wish never ends another, not even one of a fence that was lifted and applied again meanwhile.
alter table homeregion.fence add column if not exists asked bigint not null
  default (pg_catalog.extract('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint

-- @ What each of them changed and what was there before, committed together with the change itself, so that no crash parts the two. An item
-- @ goes away in the commit that brings it back.
create table if not exists homeregion.fence_item (
  region text not null,
  name   text not null,
  item   text not null,
  former jsonb not null,
  primary key (region, name, item),
  foreign key (region, name) references homeregion.fence
)

-- @ Keys that this region lost in a forced failover and that were brought level with their home since: how their rows were left then, and how many
-- @ events of theirs had been applied, so that what appeared afterwards is told from what the stream has brought.
create table if not exists homeregion.levelled (
  key     text collate pg_catalog."C" primary key,
  epoch   bigint not null,
  digest  text not null,
  applied bigint not null,
  at      timestamptz not null default pg_catalog.clock_timestamp()
)

-- @ Refused writes by cause. Sequences, because they keep counting when the refused transaction rolls back.
create sequence if not exists homeregion.refused_not_home

-- @ Refused because the key was draining.
create sequence if not exists homeregion.refused_draining

-- @ Refused because the key was fenced or catching up.
create sequence if not exists homeregion.refused_fenced

-- @ Refused because the epoch presented was not the current one, or because the snapshot was older than a change of ownership.
create sequence if not exists homeregion.refused_stale_epoch

-- @ Refused because nobody registered the key.
create sequence if not exists homeregion.refused_unknown_key

-- @ Refused TRUNCATE.
create sequence if not exists homeregion.refused_truncate

-- @ Refused because a replication consumer wrote a key whose home is here.
create sequence if not exists homeregion.refused_apply

-- @ What an operator reads: ownership, and whether a write would be admitted here now.
create or replace view homeregion.state as
select o.key, o.home_region, o.epoch, o.state, o.token, o.barrier_event_id, o.changed_at,
       exists (select from homeregion.writable w where w.key = o.key) as writable
from homeregion.ownership o
