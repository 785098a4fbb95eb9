import type { GuardedTable } from '../../src/domain/config.ts'

const PASSWORD = 'throwaway-of-one-test'
const table = (schema: string, name: string): GuardedTable => ({ schema, table: name, key: 'tenant_id', guard: 'row', versions: null })

const BULK = Array.from({ length: 40 }, (_, i) => `T "${i + 1}"`)
export const GUARDED = [
  table('public', 'account'),
  table('public', 'invoice'),
  table('odd "schema', 'Order'),
  ...BULK.map(t => table('Bulk', t)),
]

/** Every login with one way to write, none of them declared; `nobody` and `no option` have none. */
export const LOGINS = [
  'direct',
  'by column',
  'at a partition',
  'truncates',
  'member',
  'no inherit',
  'nested',
  'all data',
  'of owner',
  'of super',
  'by view',
  'by definer',
  'by text',
  'by fenced definer',
  'by cascade',
  'by rule',
  'by trigger',
  'makes triggers',
  'may replicate',
  'does replicate',
  'bypasses rls',
  'makes roles',
  'Owner; "of" one',
  'runs programs',
  'by chain',
  'admin only',
  'no option',
  'nobody',
] as const

const q = (name: string) => `"${name.replaceAll('"', '""')}"`

/** 30 roles and more, 60 tables and more, in five schemas. Run by a superuser before the boundary is installed. */
export function messySchema(version: 15 | 18): string {
  const bulk = (name: string) =>
    `create table "Bulk".${q(name)} (tenant_id text not null, v int); alter table "Bulk".${q(name)} owner to app_owner; grant insert, update on "Bulk".${q(name)} to app_writer, "group 1";`
  const other = (n: number) =>
    `create table "Other".${q(`other ${n}`)} (id int primary key, v int); grant all on "Other".${q(`other ${n}`)} to "group 1";`
  const option = (text: string) => (version === 15 ? '' : text)
  return `
    ${LOGINS.map(l => `create role ${q(l)} login ${l === 'no inherit' ? 'noinherit' : ''} password '${PASSWORD}'; grant connect on database app to ${q(l)}; grant usage on schema public to ${q(l)};`).join('\n')}
    create role "group 1" nologin; create role "group 2" nologin; create role "root 2" nologin superuser; create role chief nologin;
    create schema "Bulk"; create schema "Other"; create schema "odd ""schema"; grant usage on schema "Bulk", "Other", "odd ""schema" to public;
    grant usage on schema public to "group 1", "group 2", chief;
    ${BULK.map(bulk).join('\n')}
    ${Array.from({ length: 16 }, (_, i) => other(i)).join('\n')}
    create table "odd ""schema"."Order" (tenant_id text not null, note text); alter table "odd ""schema"."Order" owner to ${q('Owner; "of" one')};
    create table customer (tenant_id_of text primary key); create table "Other".source (note text); create table "Other".noted (note text);
    insert into customer values ('c');
    alter table customer owner to app_owner; alter table "Other".source owner to app_owner; alter table "Other".noted owner to app_owner;
    set role app_owner;
    alter table account add column customer text references customer on delete cascade on update cascade;
    alter table invoice enable row level security;
    create policy everybody on invoice using (true);
    create view account_view as select tenant_id, account_id, billing_address, version from account;
    create rule copies as on insert to "Other".source do also update account set billing_address = new.note where tenant_id = 'nobody';
    create function note_it() returns trigger language plpgsql security definer as $$ begin update public.account set billing_address = new.note where tenant_id = 'nobody'; return new; end $$;
    create trigger note_it before insert on "Other".noted for each row execute function note_it();
    create function write_as_owner() returns void language sql security definer as $$ update public.account set billing_address = 'x' where tenant_id = 'nobody' $$;
    create function run_any(t text) returns void language plpgsql security definer as $$ begin execute t; end $$;
    revoke execute on function write_as_owner(), run_any(text), note_it() from public;
    grant execute on function write_as_owner() to "by definer"; grant execute on function run_any(text) to "by text";
    grant select, insert, update, delete, truncate on account, invoice to "group 1";
    grant select, update on account to direct; grant update (billing_address) on account to "by column"; grant insert on invoice_0 to "at a partition";
    grant truncate on invoice to truncates; grant update on account_view to "by view"; grant trigger on account to "makes triggers";
    grant update on account to chief with grant option; grant select, delete on customer to "by cascade";
    grant insert on "Other".source to "by rule"; grant insert on "Other".noted to "by trigger";
    grant update on invoice to "bypasses rls"; grant update on account to "may replicate", "does replicate";
    alter default privileges in schema public grant insert, update on tables to direct;
    set role chief; grant update on account to "by chain"; reset role;
    create function as_group() returns void language sql security definer as $$ update public.account set billing_address = 'x' where false $$;
    alter function as_group() owner to "group 1"; revoke execute on function as_group() from public; grant execute on function as_group() to "by fenced definer";
    grant temporary on database app to "makes triggers";
    grant app_writer to member; grant "group 1" to "group 2", "no inherit"; grant "group 2" to nested; grant pg_write_all_data to "all data";
    grant app_owner to "of owner"; grant "root 2" to "of super"; grant pg_execute_server_program to "runs programs";
    ${option('grant "group 1" to "admin only" with admin option, inherit false, set false; grant "group 1" to "no option" with inherit false, set false;')}
    grant set on parameter session_replication_role to "may replicate"; alter role "does replicate" in database app set session_replication_role = replica;
    alter role "bypasses rls" bypassrls; alter role "makes roles" createrole;
    create foreign data wrapper elsewhere; create server "back again" foreign data wrapper elsewhere;
    create user mapping for direct server "back again" options (user 'app_writer', password 'throwaway-of-one-test');
    create function meddle() returns event_trigger language plpgsql security definer as $$ begin end $$;
    create event trigger meddler on ddl_command_end when tag in ('COMMENT') execute function meddle();`
}

/** Run once the boundary stands: a subscription that has one of its tables, made without its publisher. */
export const SUBSCRIBE = `
  create subscription "from afar" connection 'host=127.0.0.1 port=1 dbname=nowhere' publication p with (connect = false);
  set allow_system_table_mods = on;
  insert into pg_subscription_rel (srsubid, srrelid, srsubstate) select oid, 'public.account'::regclass, 'r' from pg_subscription where subname = 'from afar';
  alter subscription "from afar" enable;
  reset allow_system_table_mods`

/** What each login tries; `object`: what a finding may name instead of the login. Every one in a transaction that is rolled back. */
export const ATTEMPTS: readonly { readonly sql: string; readonly object?: string }[] = [
  { sql: `update account set billing_address = 'x' where false` },
  { sql: `insert into invoice_0 (tenant_id, invoice_id, account_id, amount_cents) select 'a', 'b', 'c', 1 where false` },
  { sql: `update invoice set amount_cents = 1 where false` },
  { sql: `update account_view set billing_address = 'x' where false` },
  { sql: `delete from "odd ""schema"."Order"` },
  { sql: 'select write_as_owner()' },
  { sql: `select run_any('alter table account disable trigger zzz_homeregion_insert')` },
  { sql: 'select as_group()' },
  { sql: `delete from customer where tenant_id_of = 'c'`, object: 'customer' },
  { sql: `insert into "Other".source values ('x')`, object: '"Other".source' },
  { sql: `insert into "Other".noted values ('x')`, object: '"Other".noted' },
  { sql: 'alter table account disable trigger zzz_homeregion_insert' },
  { sql: 'alter table "odd ""schema"."Order" disable trigger zzz_homeregion_insert' },
  {
    sql: 'create function pg_temp.evil() returns trigger language plpgsql as $$ begin return new; end $$; create trigger zzzz before insert on account for each row execute function pg_temp.evil()',
  },
  { sql: 'set local session_replication_role = replica' },
  { sql: `do $$ begin if current_setting('session_replication_role') <> 'replica' then raise 'no'; end if; end $$` },
  { sql: `copy (select 1) to program 'cat > /dev/null'` },
  ...['group 1', 'group 2', 'app_writer', 'app_owner', 'root 2', 'chief'].map(r => ({
    sql: `set local role ${q(r)}; update account set billing_address = 'x' where false`,
  })),
  { sql: 'grant pg_write_all_data to current_user; update account set billing_address = $$x$$ where false' },
  { sql: 'grant "group 1" to current_user; set local role "group 1"; update account set billing_address = $$x$$ where false' },
]
