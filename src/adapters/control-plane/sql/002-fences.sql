-- Version 2 of the control plane: what was done to the fences of whole regions.
-- {{fence_events}} and {{fence_kinds}} are rendered from the lists in the domain.

-- @ What happened to the fences of a region, in the order it arrived here. Append-only. An emergency writes it on the operator's machine first, so
-- @ `at` is that machine's clock and `recorded_at` ours; the two are never compared.
create table homeregion_control.fence_log (
  id uuid primary key,
  nth bigint generated always as identity,
  region text not null check (region <> ''),
  fence text not null check (fence <> ''),
  kind text not null constraint fence_log_kind check (kind in ({{fence_kinds}})),
  event text not null constraint fence_log_event check (event in ({{fence_events}})),
  at timestamptz not null,
  recorded_at timestamptz not null default now(),
  recorded_by text not null default session_user,
  said_by text not null check (said_by <> ''),
  host text not null,
  run_id text check (run_id <> ''),
  reason text,
  detail jsonb not null,
  constraint fence_log_order unique (nth),
  constraint fence_log_reason check (event not in ('apply-started', 'lift-started', 'rotated') or coalesce(reason, '') <> '')
);

-- @ The newest entry of a fence is found without reading its history.
create index fence_log_by_fence on homeregion_control.fence_log (region, fence, nth);
