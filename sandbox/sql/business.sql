-- Tables of the reference service, one copy per region. Repeatable. Run as a superuser in the service's own database.
set role app_owner;

create table if not exists public.account (
  tenant_id       text not null,
  account_id      text not null,
  version         bigint not null check (version > 0),
  billing_address text not null,
  updated_at      timestamptz not null default clock_timestamp(),
  primary key (tenant_id, account_id)
);

create table if not exists public.invoice (
  tenant_id    text not null,
  invoice_id   text not null,
  account_id   text not null,
  amount_cents bigint not null,
  created_at   timestamptz not null default clock_timestamp(),
  primary key (tenant_id, invoice_id)
) partition by hash (tenant_id);
create table if not exists public.invoice_0 partition of public.invoice for values with (modulus 2, remainder 0);
create table if not exists public.invoice_1 partition of public.invoice for values with (modulus 2, remainder 1);

-- The envelope, the ownership key, and when the broker acknowledged it. `position` only keeps a relay's batches in order of
-- writing: it is not the order of commits, and nothing may read it as one.
create table if not exists public.outbox (
  position          bigint generated always as identity,
  event_id          uuid primary key,
  tenant_id         text not null,
  aggregate_type    text not null,
  aggregate_id      text not null,
  event_type        text not null,
  source_region     text not null,
  home_region       text not null,
  owner_epoch       bigint not null,
  aggregate_version bigint not null,
  occurred_at       timestamptz not null,
  payload           jsonb,
  published_at      timestamptz
);
create index if not exists outbox_unpublished on public.outbox (tenant_id, position) where published_at is null;
create index if not exists outbox_by_position on public.outbox (position) where published_at is null;
create index if not exists outbox_by_aggregate on public.outbox (tenant_id, aggregate_id, aggregate_version);

-- Every event that came from elsewhere, also those the consumer does not understand.
create table if not exists public.inbox (
  event_id    uuid primary key,
  tenant_id   text not null,
  owner_epoch bigint not null,
  event_type  text not null,
  applied_at  timestamptz not null default clock_timestamp(),
  payload     jsonb
);
create index if not exists inbox_by_key on public.inbox (tenant_id, owner_epoch, applied_at);

create table if not exists public.idempotency (
  tenant_id       text not null,
  idempotency_key text not null,
  response        jsonb not null,
  created_at      timestamptz not null default clock_timestamp(),
  primary key (tenant_id, idempotency_key)
);

-- Wakes the relay at commit; without it a poll would add its interval to every event's trip.
create or replace function public.outbox_wakes_relay() returns trigger language plpgsql as $$
begin
  perform pg_catalog.pg_notify('outbox', '');
  return null;
end $$;
create or replace trigger outbox_wakes_relay after insert on public.outbox for each statement execute function public.outbox_wakes_relay();

grant usage on schema public to app_writer, app_relay, app_inbox;
grant select, insert, update, delete on public.account, public.invoice to app_writer;
grant select, insert on public.outbox, public.idempotency to app_writer;
grant select, update (published_at) on public.outbox to app_relay;
grant select, insert, update, delete on public.account, public.invoice to app_inbox;
grant select, insert, update on public.idempotency to app_inbox;
grant select, insert on public.inbox to app_inbox;

reset role;
