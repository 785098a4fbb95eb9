-- Version 1 of the control plane. An empty line separates statements; `-- @` says why each is there; `init --dry-run` shows both.
-- {{transition_check}} and {{interlock_check}} are rendered from the table of transitions, the only list of what is legal.
-- Empty text stands for "none" where a column takes part in a foreign key: a null there would switch the key off.

-- @ Everything of the control plane lives in one schema, so that it can share a database with a region.
create schema if not exists homeregion_control;

-- @ Says which migrations have run; an older tool refuses to work on a newer schema.
create table homeregion_control.schema_version (
  version int primary key,
  applied_at timestamptz not null default now(),
  applied_by text not null default session_user
);

-- @ Says whose control plane this is, so that a second service cannot be installed over it.
create table homeregion_control.installation (
  id int primary key default 1 check (id = 1),
  service text not null,
  topology text not null check (topology in ('independent', 'shared'))
);

-- @ Refuses inside a pipelined transaction: its COMMIT is on its way already, so only an error can stop it.
create function homeregion_control.require(ok boolean, code text, what text) returns boolean language plpgsql as $$
begin
  if ok then
    return true;
  end if;
  raise exception using errcode = code, message = what;
end
$$;

-- @ Run tokens rise across all runs, because a region remembers the highest token it has seen for a key.
create sequence homeregion_control.run_token;

-- @ One execution of a runbook, pinned to the text it was opened with, and the lease on it.
create table homeregion_control.run (
  id text primary key check (id <> ''),
  plan_id text not null,
  runbook_name text not null,
  runbook_text text not null,
  runbook_sha256 text not null,
  runbook_origin text not null,
  intent text not null check (intent in ('transfer', 'failover')),
  dropped jsonb not null,
  reason text,
  state text not null check (state in ('OPEN', 'NEEDS_HUMAN', 'DONE', 'ABORTED', 'REFUSED')),
  open boolean not null,
  token bigint not null,
  holder_host text,
  holder_pid bigint,
  holder_user text,
  lease_until timestamptz,
  started_at timestamptz not null default now(),
  started_by text not null default session_user,
  ended_at timestamptz,
  constraint run_token_once unique (token),
  constraint run_open_state unique (id, open),
  constraint run_open check (open = (state in ('OPEN', 'NEEDS_HUMAN'))),
  constraint run_ended check (open = (ended_at is null))
);

-- @ Runs are listed newest first.
create index run_started on homeregion_control.run (started_at);

-- @ The append-only history of ownership. Its constraints are the compare-and-swap: the primary key lets one change through for each
-- @ number, and the foreign key to the row before makes a forged predecessor impossible.
create table homeregion_control.ownership_log (
  key text not null check (key <> '' and length(key) <= 200),
  seq bigint not null check (seq >= 1),
  transition text not null,
  prev_seq bigint,
  from_state text,
  from_home text,
  from_epoch bigint,
  from_target text,
  from_run text,
  to_state text not null,
  to_home text not null check (to_home <> ''),
  to_epoch bigint not null check (to_epoch >= 1),
  to_target text not null,
  run_id text not null,
  changing_run text generated always as (nullif(run_id, '')) stored,
  token bigint not null,
  activation_id uuid,
  at timestamptz not null default now(),
  actor text not null default session_user,
  primary key (key, seq),
  constraint ownership_log_result unique (key, seq, to_state, to_home, to_epoch, to_target, run_id),
  constraint ownership_log_predecessor foreign key (key, prev_seq, from_state, from_home, from_epoch, from_target, from_run)
    references homeregion_control.ownership_log (key, seq, to_state, to_home, to_epoch, to_target, run_id),
  constraint ownership_log_transition check ({{transition_check}}),
  constraint ownership_log_interlock check ({{interlock_check}})
);

-- @ The current record of each key: always one of the rows of its log.
create table homeregion_control.ownership (
  key text primary key,
  seq bigint not null,
  state text not null,
  home_region text not null,
  epoch bigint not null,
  target_region text not null,
  run_id text not null,
  changed_at timestamptz not null default now(),
  changed_by text not null default session_user,
  constraint ownership_is_logged foreign key (key, seq, state, home_region, epoch, target_region, run_id)
    references homeregion_control.ownership_log (key, seq, to_state, to_home, to_epoch, to_target, run_id)
);

-- @ Status counts and lists from this index alone.
create index ownership_by_home on homeregion_control.ownership (home_region, state, key);

-- @ A constraint cannot see the row before, so this one rule needs a trigger: the pointer only moves to the next row of the log.
create function homeregion_control.ownership_forward() returns trigger language plpgsql as $$
begin
  if new.key <> old.key or new.seq <> old.seq + 1 then
    raise exception using errcode = 'HC007', message = 'ownership only moves to the next row of its log';
  end if;
  return new;
end
$$;

-- @ Keeps anybody, the owner included, from pointing a key back at an earlier owner.
create trigger ownership_forward before update on homeregion_control.ownership
  for each row execute function homeregion_control.ownership_forward();

-- @ The keys of a run. `open` follows the run through the foreign key, and the index below allows one open run for each key.
create table homeregion_control.run_key (
  run_id text not null,
  key text not null references homeregion_control.ownership (key),
  source text not null,
  target text not null,
  epoch bigint not null,
  seq bigint not null,
  outcome text check (outcome in ('moved', 'not-moved', 'rolled-back', 'unknown')),
  open boolean not null default true,
  primary key (run_id, key),
  constraint run_key_move unique (run_id, key, source, target, epoch),
  constraint run_key_regions check (source <> target),
  constraint run_key_run foreign key (run_id, open) references homeregion_control.run (id, open) on update cascade
);

-- @ One open run for each key.
create unique index run_key_one_open on homeregion_control.run_key (key) where open;

-- @ Finds the runs of a key.
create index run_key_by_key on homeregion_control.run_key (key);

-- @ Only a run that took the key can write its log.
alter table homeregion_control.ownership_log add constraint ownership_log_run
  foreign key (changing_run, key) references homeregion_control.run_key (run_id, key);

-- @ One try of one step; committed before its side effect, so that no effect is ever unknown to the journal.
create table homeregion_control.attempt (
  id text primary key check (id <> ''),
  run_id text not null references homeregion_control.run (id),
  key text,
  step text not null,
  action text not null,
  token bigint not null,
  started_at timestamptz not null default now(),
  outcome text check (outcome in ('done', 'failed', 'unknown', 'undone')),
  ended_at timestamptz,
  result jsonb,
  constraint attempt_of_key unique (id, run_id, key),
  constraint attempt_key foreign key (run_id, key) references homeregion_control.run_key (run_id, key),
  constraint attempt_ended check ((outcome is null) = (ended_at is null))
);

-- @ Resume and `run show` read the attempts of one run.
create index attempt_by_run on homeregion_control.attempt (run_id, started_at);

-- @ One observation by one check, bound to the run, key and attempt it was made for. An attempt that the interlock refused was never
-- @ started, and its evidence is kept all the same.
create table homeregion_control.evidence (
  id uuid primary key,
  nth bigint not null,
  run_id text not null references homeregion_control.run (id),
  key text,
  check_name text not null,
  verdict text not null check (verdict in ('pass', 'fail', 'unknown')),
  observed text not null,
  required text not null,
  observer text not null,
  facts jsonb,
  step text not null,
  attempt_id text,
  as_of timestamptz not null,
  as_of_monotonic_ms double precision not null,
  recorded_at timestamptz not null default now(),
  recorded_by text not null default session_user,
  constraint evidence_key foreign key (run_id, key) references homeregion_control.run_key (run_id, key),
  constraint evidence_use unique (id, run_id, key, check_name, verdict, attempt_id, recorded_at)
);

-- @ Reports read the evidence of one run in the order it was recorded.
create index evidence_by_run on homeregion_control.evidence (run_id, recorded_at, nth);

-- @ Which proofs an activation needs, as configured at init. A policy is retired, never changed: old activations keep theirs.
create table homeregion_control.interlock_policy (
  id bigint primary key,
  needs_barrier boolean not null,
  needs_versions boolean not null,
  needs_idempotency boolean not null,
  in_force boolean not null,
  set_at timestamptz not null default now(),
  set_by text not null default session_user,
  constraint interlock_policy_use unique (id, needs_barrier, needs_versions, needs_idempotency, in_force)
);

-- @ One policy in force.
create unique index interlock_policy_one on homeregion_control.interlock_policy (in_force) where in_force;

-- @ The third lock of the interlock. Each proof is a foreign key to an evidence row of this run, key and attempt that passed and was
-- @ recorded in this very transaction; the policy in force says which may not be missing.
create table homeregion_control.activation (
  id uuid primary key,
  run_id text not null,
  key text not null,
  source text not null,
  target text not null,
  epoch bigint not null,
  attempt_id text not null,
  token bigint not null,
  policy_id bigint not null,
  needs_barrier boolean not null,
  needs_versions boolean not null,
  needs_idempotency boolean not null,
  policy_in_force boolean not null default true,
  verdict text not null default 'pass' constraint activation_verdict check (verdict = 'pass'),
  fence_check text not null default 'fence-holds' constraint activation_fence_check check (fence_check = 'fence-holds'),
  fence_evidence_id uuid not null,
  barrier_check text not null default 'barrier-applied' constraint activation_barrier_check check (barrier_check = 'barrier-applied'),
  barrier_evidence_id uuid,
  versions_check text not null default 'versions-equal' constraint activation_versions_check check (versions_check = 'versions-equal'),
  versions_evidence_id uuid,
  idempotency_check text not null default 'idempotency-carried'
    constraint activation_idempotency_check check (idempotency_check = 'idempotency-carried'),
  idempotency_evidence_id uuid,
  at timestamptz not null default now(),
  actor text not null default session_user,
  constraint activation_once unique (key, epoch),
  constraint activation_use unique (id, run_id, key, epoch, source, target),
  constraint activation_needs_barrier check (not needs_barrier or barrier_evidence_id is not null),
  constraint activation_needs_versions check (not needs_versions or versions_evidence_id is not null),
  constraint activation_needs_idempotency check (not needs_idempotency or idempotency_evidence_id is not null),
  constraint activation_move foreign key (run_id, key, source, target, epoch)
    references homeregion_control.run_key (run_id, key, source, target, epoch),
  constraint activation_attempt foreign key (attempt_id, run_id, key) references homeregion_control.attempt (id, run_id, key),
  constraint activation_policy foreign key (policy_id, needs_barrier, needs_versions, needs_idempotency, policy_in_force)
    references homeregion_control.interlock_policy (id, needs_barrier, needs_versions, needs_idempotency, in_force) on update cascade,
  constraint activation_fence foreign key (fence_evidence_id, run_id, key, fence_check, verdict, attempt_id, at)
    references homeregion_control.evidence (id, run_id, key, check_name, verdict, attempt_id, recorded_at),
  constraint activation_barrier foreign key (barrier_evidence_id, run_id, key, barrier_check, verdict, attempt_id, at)
    references homeregion_control.evidence (id, run_id, key, check_name, verdict, attempt_id, recorded_at),
  constraint activation_versions foreign key (versions_evidence_id, run_id, key, versions_check, verdict, attempt_id, at)
    references homeregion_control.evidence (id, run_id, key, check_name, verdict, attempt_id, recorded_at),
  constraint activation_idempotency foreign key (idempotency_evidence_id, run_id, key, idempotency_check, verdict, attempt_id, at)
    references homeregion_control.evidence (id, run_id, key, check_name, verdict, attempt_id, recorded_at)
);

-- @ Ownership is handed over only by an activation of the same run, key, epoch, source and target.
alter table homeregion_control.ownership_log add constraint ownership_log_activation
  foreign key (activation_id, run_id, key, from_epoch, from_home, to_home)
  references homeregion_control.activation (id, run_id, key, epoch, source, target);

-- @ Who did what, each row sealed by the hash of the row before; unique `prev_hash` means that the chain cannot fork.
create table homeregion_control.audit (
  seq bigint primary key,
  at timestamptz not null default now(),
  actor text not null default session_user,
  event text not null,
  run_id text,
  key text,
  detail jsonb not null,
  prev_hash text not null constraint audit_no_fork unique,
  hash text not null constraint audit_hash unique
);

-- @ The end of the audit chain; locking it is what puts the rows in one order.
create table homeregion_control.audit_head (
  id int primary key check (id = 1),
  seq bigint not null,
  hash text not null
);

-- @ The chain begins at zero.
insert into homeregion_control.audit_head (id, seq, hash) values (1, 0, repeat('0', 64));
