-- Version 7 of the control plane.

-- @ A drill before its first move, with where its keys were at home: one whose process dies on the way leaves behind where they have to return to.
-- @ Append-only.
create table homeregion_control.drill_begun (
  id uuid primary key,
  home text not null check (home <> ''),
  target text not null check (target <> ''),
  keys jsonb not null constraint drill_begun_keys check (jsonb_typeof(keys) = 'array'),
  holder_host text not null,
  holder_pid bigint not null,
  holder_user text not null,
  at timestamptz not null default now(),
  actor text not null default session_user
);
