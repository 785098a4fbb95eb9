import type pg from 'pg'
import { createReadOnlyFence } from '../../src/adapters/postgres-region/fences/read-only.ts'
import type { Config, DatabaseLogin, RegionConfig } from '../../src/domain/config.ts'
import type { Fence } from '../../src/domain/fence.ts'
import { adminSecrets, type RegionFixture, secrets } from './boundary-fixture.ts'

export const CAUSE = { reason: 'a test', by: 'test', runId: null }

/** Grants of every shape: groups, PUBLIC, columns, chains with grant option, views, partitions, names that need quotes. */
export const MESSY = `
  create role app_team nologin; create role "Lead; drop" nologin; create role app_junior login password 'throwaway-of-one-test'; create role app_member login password 'throwaway-of-one-test';
  create role app_viewer login password 'throwaway-of-one-test'; create role app_other nologin;
  grant app_team to app_member; grant connect on database app to app_junior, app_member, app_viewer;
  create schema "odd ""schema"; grant usage on schema "odd ""schema" to public;
  create table "odd ""schema"."Order" (tenant_id text not null, "Über" int, note text); alter table "odd ""schema"."Order" owner to app_owner;
  create view account_view as select tenant_id, account_id, billing_address, version from account; alter view account_view owner to app_owner;
  grant usage on schema public to "Lead; drop", app_junior, app_member, app_viewer;
  set role app_owner;
  grant select, insert, update on account_view to app_viewer;
  grant insert, update on account to app_team;
  grant insert on account to public;
  grant insert, update, delete, references on account to "Lead; drop" with grant option;
  grant update (billing_address), insert (tenant_id, account_id) on account to app_other with grant option;
  grant truncate, delete on invoice_0 to app_junior;
  grant all on "odd ""schema"."Order" to app_team;
  grant update ("Über") on "odd ""schema"."Order" to public;
  grant update on outbox to "Lead; drop" with grant option;
  set role "Lead; drop";
  grant insert, update on account to app_junior;
  grant update on account to app_team with grant option;
  grant update (published_at) on outbox to app_junior;
  grant delete on account to app_inbox;
  reset role; set role app_owner; revoke delete on account from app_inbox; reset role;
  grant usage on schema public to app_other; set role app_other; grant update (billing_address) on account to app_junior; reset role`

export function readOnly(
  f: RegionFixture,
  changes: Partial<RegionConfig['database']> = {},
): { fence: Fence; config: Config; password: string } {
  const password = new URL(f.server.adminUrl).password
  const region: RegionConfig = { ...f.region, database: { ...f.region.database, ...changes } }
  const config: Config = { ...f.config, regions: [region] }
  const read = async (reference: unknown) =>
    JSON.stringify(reference) === JSON.stringify({ env: 'ADMIN' }) ? await adminSecrets(f).read() : await secrets.read()
  const fence = createReadOnlyFence(region, { name: 'read-only', kind: 'read-only' }, config, { read }, () => Promise.resolve())
  return { fence, config, password: decodeURIComponent(password) }
}

export function loginAs(f: RegionFixture, role: string): DatabaseLogin & { role: string } {
  return { url: `postgres://${role}@127.0.0.1:${f.server.port}/app`, password: { env: 'PASSWORD' }, role }
}

/** Every entry of every ACL outside the catalogues, sorted: what has to be the same afterwards. */
export async function accessLists(admin: pg.Client): Promise<readonly string[]> {
  const { rows } = await admin.query<{ entry: string }>(`
    select format('%s %s', c.oid::regclass, a::text) as entry from pg_class c, unnest(coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::"char", c.relowner))) a
    where c.relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) and c.relkind in ('r', 'p', 'v', 'S')
    union all
    select format('%s.%s %s', t.attrelid::regclass, t.attname, a::text) from pg_attribute t, unnest(t.attacl) a
    where t.attrelid >= 16384 order by 1`)
  // The letters of one entry come in the catalogue's own order; a set of entries is what is compared.
  return rows.map(r => r.entry)
}
