-- Version 5 of the control plane.

-- @ The runbook by which a region comes back, pinned for its exile at the first rejoin: a later edit of the file changes no return that is half
-- @ done. The newest of an exile is followed; those it replaced stay on record.
create table homeregion_control.rejoin_runbook (
  exile_id uuid not null references homeregion_control.exile (id),
  nth bigint not null check (nth >= 1),
  name text not null check (name <> ''),
  text text not null check (text <> ''),
  sha256 text not null constraint rejoin_runbook_sha256 check (sha256 ~ '^[0-9a-f]{64}$'),
  origin text not null,
  pinned_at timestamptz not null default now(),
  pinned_by text not null default session_user,
  primary key (exile_id, nth)
);

-- @ A step that its author added to that runbook and that was done: once is enough. What homeregion does itself is looked at again each time.
create table homeregion_control.rejoin_step (
  exile_id uuid not null,
  nth bigint not null,
  step text not null check (step <> ''),
  done_at timestamptz not null default now(),
  done_by text not null default session_user,
  primary key (exile_id, nth, step, done_at),
  constraint rejoin_step_of_runbook foreign key (exile_id, nth) references homeregion_control.rejoin_runbook (exile_id, nth)
);
