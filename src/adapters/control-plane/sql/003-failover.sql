-- Version 3 of the control plane: leases of regions, what agents see of them, and forced failovers with all that they stand on.
-- {{forced_check}}, {{outside_fences}} and the other lists are rendered from the domain. `-1` stands for "any" where a bound takes part in a
-- foreign key, and empty text for "none".

-- @ The transitions of a forced failover are legal from here on.
alter table homeregion_control.ownership_log drop constraint ownership_log_transition;

-- @ The table of transitions, as this version knows it.
alter table homeregion_control.ownership_log add constraint ownership_log_transition check ({{transition_check}});

-- @ A run whose keys were all taken by a forced failover ends as SEIZED.
alter table homeregion_control.run drop constraint run_state_check;

-- @ The states of a run, as this version knows them.
alter table homeregion_control.run add constraint run_states check (state in ({{run_states}}));

-- @ What a forced failover, its approvals and its acknowledgement refer to of their run.
alter table homeregion_control.run add constraint run_intent_use unique (id, intent);

-- @ An approval is bound to the one who began the run.
alter table homeregion_control.run add constraint run_starter_use unique (id, started_by);

-- @ An acknowledgement is bound to the plan of its run.
alter table homeregion_control.run add constraint run_plan_use unique (id, plan_id);

-- @ A failover may stand in line for a key that another run holds (`seizing`), and takes it from that run (`seized`) in its one commit.
alter table homeregion_control.run_key add column hold text not null default 'held' constraint run_key_hold check (hold in ('held', 'seizing', 'seized'));

-- @ Set only while the key stands in line, so that the foreign key below speaks of no other.
alter table homeregion_control.run_key add column seizing_intent text generated always as (case when hold = 'seizing' then 'failover' end) stored;

-- @ Only a run of intent failover can stand in line.
alter table homeregion_control.run_key add constraint run_key_seizing foreign key (run_id, seizing_intent) references homeregion_control.run (id, intent);

-- @ One open run holds a key...
drop index homeregion_control.run_key_one_open;

-- @ ...and its index no longer counts those in line and those it was taken from.
create unique index run_key_one_open on homeregion_control.run_key (key) where open and hold = 'held';

-- @ ...and one stands in line for it.
create unique index run_key_one_seizing on homeregion_control.run_key (key) where open and hold = 'seizing';

-- @ The lease of each region as the control plane grants it. The bound is ours: a region's own end is earlier.
create table homeregion_control.region_lease (
  region text primary key check (region <> ''),
  generation bigint not null check (generation >= 0),
  agent text not null,
  over_at timestamptz not null,
  duration_ms bigint not null check (duration_ms >= 0),
  margin_ms bigint not null check (margin_ms >= 0),
  withheld_by text not null default '',
  withholding_run text generated always as (nullif(withheld_by, '')) stored references homeregion_control.run (id)
);

-- @ A lease that is withheld is not granted, whoever asks; one that is granted is never made shorter on record.
create function homeregion_control.region_lease_forward() returns trigger language plpgsql as $$
begin
  if new.region <> old.region or new.generation < old.generation or new.over_at < old.over_at then
    raise exception using errcode = '{{lease_withheld}}', message = 'a granted lease cannot be taken back, only waited out';
  end if;
  if old.withheld_by <> '' and (new.over_at > old.over_at or new.generation > old.generation) then
    raise exception using errcode = '{{lease_withheld}}', message = 'the lease is withheld';
  end if;
  if old.withheld_by <> '' and new.withheld_by = '' and exists (
    select 1 from homeregion_control.region_standing s where s.region = old.region and s.exiled
  ) then
    raise exception using errcode = '{{exiled}}', message = old.region || ' is in exile: its lease stays withheld';
  end if;
  return new;
end
$$;

-- @ Keeps anybody, the owner included, from granting what a failover waits out.
create trigger region_lease_forward before update on homeregion_control.region_lease
  for each row execute function homeregion_control.region_lease_forward();

-- @ One agent leads all the others, for a time.
create table homeregion_control.agent_lead (
  id int primary key default 1 check (id = 1),
  agent text not null check (agent <> ''),
  until timestamptz not null,
  actor text not null default session_user
);

-- @ The newest look of each agent at each region. A look, not a log: the next replaces it.
create table homeregion_control.region_observation (
  region text not null check (region <> ''),
  observer text not null check (observer <> ''),
  taken_at timestamptz not null,
  unpublished bigint not null check (unpublished >= 0),
  oldest_unpublished_ms double precision,
  not_applied jsonb not null,
  highest_per_second double precision,
  primary key (region, observer)
);

-- @ When each vantage point last reached what of a region.
create table homeregion_control.region_sight (
  region text not null check (region <> ''),
  vantage text not null check (vantage <> ''),
  what text not null constraint region_sight_what check (what in ({{sights}})),
  last_contact_at timestamptz,
  primary key (region, vantage, what)
);

-- @ Who may approve and when it takes an approval, as configured at init. Retired, never changed.
create table homeregion_control.approval_policy (
  id bigint primary key,
  approvers jsonb not null,
  needed int not null check (needed >= 1),
  above_keys bigint not null check (above_keys >= 0),
  in_force boolean not null,
  set_at timestamptz not null default now(),
  set_by text not null default session_user,
  constraint approval_policy_use unique (id, above_keys, in_force)
);

-- @ One policy in force.
create unique index approval_policy_one on homeregion_control.approval_policy (in_force) where in_force;

-- @ Who said what of a run: by database login, once each. The one who began it has no say, unless the glass is broken.
create table homeregion_control.approval (
  run_id text not null,
  starter text not null,
  approver text not null default session_user,
  verdict text not null constraint approval_verdict check (verdict in ('approved', 'rejected')),
  reason text not null,
  break_glass boolean not null,
  at timestamptz not null default clock_timestamp(),
  constraint approval_once primary key (run_id, approver),
  constraint approval_run foreign key (run_id, starter) references homeregion_control.run (id, started_by),
  constraint approval_by_another check (approver <> starter or break_glass),
  constraint approval_break_glass check (not break_glass or (verdict = 'approved' and reason <> ''))
);

-- @ A constraint cannot read a list, so this rule needs a trigger: the login is one of the approvers of the policy in force.
create function homeregion_control.approval_listed() returns trigger language plpgsql as $$
begin
  if new.break_glass or exists (
    select 1 from homeregion_control.approval_policy p where p.in_force and p.approvers @> jsonb_build_array(new.approver)
  ) then
    return new;
  end if;
  raise exception using errcode = '{{not_approved}}', message = new.approver || ' is not among the approvers';
end
$$;

-- @ Nobody else approves.
create trigger approval_listed before insert on homeregion_control.approval
  for each row execute function homeregion_control.approval_listed();

-- @ Tokens that acknowledge a loss before it happens. Only their hash is here.
create table homeregion_control.ack_token (
  hash text primary key check (hash <> ''),
  plan_id text not null,
  keys_sha256 text not null,
  estimate_sha256 text not null,
  bound_ms bigint not null check (bound_ms >= -1),
  expires_at timestamptz not null,
  issued_at timestamptz not null default now(),
  issued_by text not null default session_user,
  constraint ack_token_use unique (hash, plan_id, keys_sha256, bound_ms, expires_at)
);

-- @ Who owned which loss, for one forced failover. A token is for the plan, keys and bound it was issued for, in time, and once.
create table homeregion_control.acknowledgement (
  id uuid primary key,
  run_id text not null,
  plan_id text not null,
  kind text not null constraint acknowledgement_kind check (kind in ('typed', 'bound', 'any', 'token')),
  bound_ms bigint not null check (bound_ms >= -1),
  keys_sha256 text not null,
  token_hash text,
  token_expires_at timestamptz,
  at timestamptz not null default now(),
  actor text not null default session_user,
  constraint acknowledgement_use unique (id, run_id, bound_ms, keys_sha256, at),
  constraint acknowledgement_token_once unique (token_hash),
  constraint acknowledgement_run foreign key (run_id, plan_id) references homeregion_control.run (id, plan_id),
  constraint acknowledgement_with_token check (
    (kind = 'token') = (token_hash is not null) and (kind = 'token') = (token_expires_at is not null)
  ),
  constraint acknowledgement_any check (kind = 'token' or (kind = 'any') = (bound_ms = -1)),
  constraint acknowledgement_in_time check (token_expires_at is null or at <= token_expires_at),
  constraint acknowledgement_token foreign key (token_hash, plan_id, keys_sha256, bound_ms, token_expires_at)
    references homeregion_control.ack_token (hash, plan_id, keys_sha256, bound_ms, expires_at)
);

-- @ Whether a region may be given anything. One row for each region that was ever a target; activations and exiles take turns on it.
create table homeregion_control.region_standing (
  region text primary key check (region <> ''),
  exiled boolean not null default false
);

-- @ What a forced failover refers to of its attempt: the run as a whole has no key.
alter table homeregion_control.attempt add constraint attempt_of_run unique (id, run_id);

-- @ The same of its evidence.
alter table homeregion_control.evidence add constraint evidence_of_run unique (id, run_id, check_name, verdict, attempt_id, recorded_at);

-- @ The third lock of a forced failover: one row for its one commit. Only a run of intent failover has one, on evidence of this run and attempt
-- @ that passed and was recorded in this very transaction, and on an acknowledgement made in it.
create table homeregion_control.forced_failover (
  id uuid primary key,
  run_id text not null,
  intent text not null default 'failover' constraint forced_failover_intent check (intent = 'failover'),
  source text not null,
  target text not null,
  keys bigint not null check (keys >= 1),
  attempt_id text not null,
  token bigint not null,
  verdict text not null default 'pass' constraint forced_failover_verdict check (verdict = 'pass'),
  dark_check text not null default 'source-dark' constraint forced_failover_dark_check check (dark_check = 'source-dark'),
  dark_evidence_id uuid not null,
  fence_check text not null constraint forced_failover_fence_check check (fence_check in ({{outside_fences}})),
  fence_evidence_id uuid not null,
  loss_check text not null default 'loss-acknowledged' constraint forced_failover_loss_check check (loss_check = 'loss-acknowledged'),
  loss_evidence_id uuid not null,
  target_check text not null default 'target-can-write' constraint forced_failover_target_check check (target_check = 'target-can-write'),
  target_evidence_id uuid not null,
  approved_check text not null default 'approved' constraint forced_failover_approved_check check (approved_check = 'approved'),
  approved_evidence_id uuid,
  approval_policy_id bigint not null,
  above_keys bigint not null,
  policy_in_force boolean not null default true,
  acknowledgement_id uuid not null,
  bound_ms bigint not null,
  keys_sha256 text not null,
  estimate_sha256 text not null,
  estimate jsonb not null,
  at timestamptz not null default now(),
  actor text not null default session_user,
  constraint forced_failover_regions check (source <> target),
  constraint forced_failover_use unique (id, run_id, source, target, keys, bound_ms),
  constraint forced_failover_ack_once unique (acknowledgement_id),
  constraint forced_failover_run foreign key (run_id, intent) references homeregion_control.run (id, intent),
  constraint forced_failover_attempt foreign key (attempt_id, run_id) references homeregion_control.attempt (id, run_id),
  constraint forced_failover_needs_approval check (
    (fence_check <> 'source-attested' and keys <= above_keys) or approved_evidence_id is not null
  ),
  constraint forced_failover_policy foreign key (approval_policy_id, above_keys, policy_in_force)
    references homeregion_control.approval_policy (id, above_keys, in_force) on update cascade,
  constraint forced_failover_ack foreign key (acknowledgement_id, run_id, bound_ms, keys_sha256, at)
    references homeregion_control.acknowledgement (id, run_id, bound_ms, keys_sha256, at),
  constraint forced_failover_dark foreign key (dark_evidence_id, run_id, dark_check, verdict, attempt_id, at)
    references homeregion_control.evidence (id, run_id, check_name, verdict, attempt_id, recorded_at),
  constraint forced_failover_fence foreign key (fence_evidence_id, run_id, fence_check, verdict, attempt_id, at)
    references homeregion_control.evidence (id, run_id, check_name, verdict, attempt_id, recorded_at),
  constraint forced_failover_loss foreign key (loss_evidence_id, run_id, loss_check, verdict, attempt_id, at)
    references homeregion_control.evidence (id, run_id, check_name, verdict, attempt_id, recorded_at),
  constraint forced_failover_target foreign key (target_evidence_id, run_id, target_check, verdict, attempt_id, at)
    references homeregion_control.evidence (id, run_id, check_name, verdict, attempt_id, recorded_at),
  constraint forced_failover_approved foreign key (approved_evidence_id, run_id, approved_check, verdict, attempt_id, at)
    references homeregion_control.evidence (id, run_id, check_name, verdict, attempt_id, recorded_at)
);

-- @ Status and reconciliation read the failovers of a region, newest first.
create index forced_failover_by_source on homeregion_control.forced_failover (source, at);

-- @ Counting needs a trigger: enough of the listed have approved, or the glass was broken; nobody has rejected.
create function homeregion_control.forced_failover_counted() returns trigger language plpgsql as $$
begin
  if exists (select 1 from homeregion_control.approval a where a.run_id = new.run_id and a.verdict = 'rejected') then
    raise exception using errcode = '{{not_approved}}', message = 'the run was rejected';
  end if;
  if (new.fence_check = 'source-attested' or new.keys > new.above_keys) and not exists (
    select 1 from homeregion_control.approval a where a.run_id = new.run_id and a.break_glass
  ) and (
    select count(*) from homeregion_control.approval a
    where a.run_id = new.run_id and exists (
      select 1 from homeregion_control.approval_policy p where p.id = new.approval_policy_id and p.approvers @> jsonb_build_array(a.approver)
    )
  ) < (select p.needed from homeregion_control.approval_policy p where p.id = new.approval_policy_id) then
    raise exception using errcode = '{{not_approved}}', message = 'too few have approved the run';
  end if;
  return new;
end
$$;

-- @ A lease that was over when somebody looked has to be over still, and withheld by this very run.
create function homeregion_control.forced_failover_lease() returns trigger language plpgsql as $$
begin
  perform 1 from homeregion_control.region_lease l where l.region = new.source for share;
  if not exists (
    select 1 from homeregion_control.region_lease l
    where l.region = new.source and l.withheld_by = new.run_id and l.generation > 0 and l.over_at <= clock_timestamp()
  ) then
    raise exception using errcode = '{{lease_not_over}}', message = 'the lease of ' || new.source || ' is not over, or not withheld by this run';
  end if;
  return new;
end
$$;

-- @ Where the lease is the fence, the record of the lease decides.
create trigger forced_failover_lease before insert on homeregion_control.forced_failover
  for each row when (new.fence_check = 'lease-over') execute function homeregion_control.forced_failover_lease();

-- @ An approval is a login that said so, not only evidence of it.
create trigger forced_failover_counted before insert on homeregion_control.forced_failover
  for each row execute function homeregion_control.forced_failover_counted();

-- @ Another row decides, and may be changing now, so this rule needs a trigger with a lock: an exile is the target of nothing.
create function homeregion_control.target_stands() returns trigger language plpgsql as $$
declare
  is_exiled boolean;
begin
  insert into homeregion_control.region_standing (region) values (new.target) on conflict (region) do nothing;
  select s.exiled into is_exiled from homeregion_control.region_standing s where s.region = new.target for share;
  if is_exiled is distinct from false then
    raise exception using errcode = '{{exiled}}', message = new.target || ' is in exile: it was failed over and is not back';
  end if;
  return new;
end
$$;

-- @ Neither a forced failover...
create trigger target_stands before insert on homeregion_control.forced_failover
  for each row execute function homeregion_control.target_stands();

-- @ ...nor a planned move leads to a region in exile.
create trigger target_stands before insert on homeregion_control.activation
  for each row execute function homeregion_control.target_stands();

-- @ One key of a forced failover, with what may be lost of it against what its policy and the acknowledgement allow. `nth` keeps their number
-- @ to what was approved.
create table homeregion_control.forced_activation (
  forced_id uuid not null,
  nth bigint not null,
  run_id text not null,
  key text not null,
  source text not null,
  target text not null,
  epoch bigint not null,
  from_seq bigint not null,
  keys bigint not null,
  bound_ms bigint not null,
  rpo text not null,
  rpo_ms bigint,
  unknown_ms double precision,
  unknown_writes double precision,
  recoverable bigint not null check (recoverable >= 0),
  applied_version bigint,
  applied_age_ms double precision,
  primary key (forced_id, key),
  constraint forced_activation_counted unique (forced_id, nth),
  constraint forced_activation_nth check (nth between 1 and keys),
  constraint forced_activation_use unique (forced_id, run_id, key, epoch, source, target),
  constraint forced_activation_rpo check ((rpo = 'any' or (rpo = 'at-most' and unknown_ms <= rpo_ms)) is true),
  constraint forced_activation_acknowledged check ((bound_ms = -1 or unknown_ms <= bound_ms) is true),
  constraint forced_activation_of foreign key (forced_id, run_id, source, target, keys, bound_ms)
    references homeregion_control.forced_failover (id, run_id, source, target, keys, bound_ms),
  constraint forced_activation_move foreign key (run_id, key, source, target, epoch)
    references homeregion_control.run_key (run_id, key, source, target, epoch)
);

-- @ A key that was taken from its run says by what.
alter table homeregion_control.run_key add column seized_by uuid;

-- @ No key is let go without the forced failover that took it.
alter table homeregion_control.run_key add constraint run_key_seized check ((hold = 'seized') = (seized_by is not null));

-- @ It took this very key.
alter table homeregion_control.run_key add constraint run_key_seized_by foreign key (seized_by, key)
  references homeregion_control.forced_activation (forced_id, key);

-- @ The runs that a forced failover took keys from.
create index run_key_by_seizure on homeregion_control.run_key (seized_by) where seized_by is not null;

-- @ Each row of a forced failover in the log names it.
alter table homeregion_control.ownership_log add column forced_id uuid;

-- @ The region that the row leads to, for the foreign key below.
alter table homeregion_control.ownership_log add column forced_target text
  generated always as (case when forced_id is null then null when to_target = '' then to_home else to_target end) stored;

-- @ The transitions of a forced failover, and no others, are part of one.
alter table homeregion_control.ownership_log add constraint ownership_log_forced check ({{forced_check}});

-- @ Ownership is forced only by a forced failover of the same run, key, epoch, source and target.
alter table homeregion_control.ownership_log add constraint ownership_log_forced_activation
  foreign key (forced_id, run_id, key, from_epoch, from_home, forced_target)
  references homeregion_control.forced_activation (forced_id, run_id, key, epoch, source, target);

-- @ A forced failover writes two rows of the log at once, and the pointer passes over the first: no key rests where only a dark region could end it.
create or replace function homeregion_control.ownership_forward() returns trigger language plpgsql as $$
begin
  if new.key = old.key and (new.seq = old.seq + 1 or (new.seq = old.seq + 2 and exists (
    select 1 from homeregion_control.ownership_log l where l.key = old.key and l.seq = old.seq + 1 and l.forced_id is not null and l.to_state = 'FENCED'
  ))) then
    return new;
  end if;
  raise exception using errcode = 'HC007', message = 'ownership only moves to the next row of its log';
end
$$;

-- @ A region that was failed over, until it is fenced, what it alone holds is listed and decided, and it is level with the others.
create table homeregion_control.exile (
  id uuid primary key,
  region text not null,
  forced_id uuid not null references homeregion_control.forced_failover (id),
  since timestamptz not null default now(),
  fenced_at timestamptz,
  listed_at timestamptz,
  level_at timestamptz,
  ended_at timestamptz,
  ended_by text,
  end_reason text,
  constraint exile_order check ((listed_at is null or fenced_at is not null) and (level_at is null or listed_at is not null)),
  constraint exile_ended check (
    (ended_at is null and ended_by is null and end_reason is null)
    or (ended_at is not null and ended_by is not null and end_reason <> '' and level_at is not null)
  )
);

-- @ One exile of a region at a time.
create unique index exile_one_open on homeregion_control.exile (region) where ended_at is null;

-- @ Every past exile of a region.
create index exile_by_region on homeregion_control.exile (region, since);

-- @ One write that exists at the former source only. Found once, decided once.
create table homeregion_control.reconcile_item (
  run_id text not null,
  id text not null check (id <> ''),
  key text not null,
  kind text not null constraint reconcile_item_kind check (kind in ({{reconcile_kinds}})),
  subject text not null,
  content jsonb not null,
  found_at timestamptz not null default now(),
  found_by text not null default session_user,
  decision text constraint reconcile_item_decision check (decision in ({{reconcile_decisions}})),
  reason text,
  decided_at timestamptz,
  decided_by text,
  primary key (run_id, id),
  constraint reconcile_item_key foreign key (run_id, key) references homeregion_control.run_key (run_id, key),
  constraint reconcile_item_decided check (
    (decision is null and reason is null and decided_at is null and decided_by is null)
    or (decision is not null and reason <> '' and decided_at is not null and decided_by is not null)
  )
);

-- @ Items are read by key.
create index reconcile_item_by_key on homeregion_control.reconcile_item (run_id, key, id);

-- @ What nobody has decided is counted without reading what was.
create index reconcile_item_undecided on homeregion_control.reconcile_item (run_id) where decision is null;

-- @ A constraint cannot see the row before: what was decided stays so, and what was found is not changed.
create function homeregion_control.reconcile_item_once() returns trigger language plpgsql as $$
begin
  if old.decision is not null then
    raise exception using errcode = '{{decided}}', message = 'the item was decided already';
  end if;
  return new;
end
$$;

-- @ Decided once.
create trigger reconcile_item_once before update on homeregion_control.reconcile_item
  for each row execute function homeregion_control.reconcile_item_once();

-- @ Other rows decide: an exile ends when nothing that was found is undecided, and an ended one is history.
create function homeregion_control.exile_ends() returns trigger language plpgsql as $$
begin
  if old.ended_at is not null or new.region <> old.region or new.id <> old.id then
    raise exception using errcode = '{{exiled}}', message = 'an exile that is over is not changed';
  end if;
  if new.ended_at is not null and exists (
    select 1 from homeregion_control.reconcile_item i
    where i.decision is null and i.run_id in (
      select f.run_id from homeregion_control.forced_failover f where f.source = new.region and f.at >= new.since
    )
  ) then
    raise exception using errcode = '{{exiled}}', message = 'an item of the reconciliation is not decided';
  end if;
  return new;
end
$$;

-- @ Nobody comes back with open questions.
create trigger exile_ends before update on homeregion_control.exile
  for each row execute function homeregion_control.exile_ends();

-- @ A region stands again only when its exile is over; it falls only with one.
create function homeregion_control.standing_follows() returns trigger language plpgsql as $$
begin
  if new.region <> old.region or new.exiled <> exists (
    select 1 from homeregion_control.exile e where e.region = new.region and e.ended_at is null
  ) then
    raise exception using errcode = '{{exiled}}', message = 'the standing of a region follows its exile';
  end if;
  return new;
end
$$;

-- @ Keeps anybody from calling an exile back without its conditions.
create trigger standing_follows before update on homeregion_control.region_standing
  for each row execute function homeregion_control.standing_follows();

-- @ Rehearsals and what they showed. Append-only.
create table homeregion_control.drill (
  id uuid primary key,
  source text not null,
  target text not null,
  keys bigint not null,
  outcome text not null constraint drill_outcome check (outcome in ({{drill_outcomes}})),
  recovery_ms double precision,
  objective_ms double precision,
  duplicates bigint,
  gaps bigint,
  took_ms double precision not null,
  detail jsonb not null,
  at timestamptz not null default now(),
  actor text not null default session_user
);

-- @ The newest drill of each pair of regions.
create index drill_by_regions on homeregion_control.drill (source, target, at);
