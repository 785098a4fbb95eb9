-- Version 9 of the control plane: an acknowledgement token belongs to the login it was given to and to the first run that uses it, from then on
-- for as long as that run takes: waiting for approval makes no token older.

-- @ What a use of a token refers to: its plan and its time...
alter table homeregion_control.ack_token add constraint ack_token_plan unique (hash, plan_id, expires_at);

-- @ ...and the login it was given to.
alter table homeregion_control.ack_token add constraint ack_token_login unique (hash, issued_by);

-- @ Which run has which token: in its time, for its plan, by its login, once. `login` is empty where a token was used before it was bound to one.
create table homeregion_control.redeemed_token (
  hash text primary key,
  run_id text not null,
  plan_id text not null,
  expires_at timestamptz not null,
  at timestamptz not null default now(),
  login text default session_user,
  constraint redeemed_token_use unique (hash, run_id, at),
  constraint redeemed_token_plan foreign key (hash, plan_id, expires_at) references homeregion_control.ack_token (hash, plan_id, expires_at),
  constraint redeemed_token_login foreign key (hash, login) references homeregion_control.ack_token (hash, issued_by),
  constraint redeemed_token_run foreign key (run_id, plan_id) references homeregion_control.run (id, plan_id),
  constraint redeemed_token_in_time check (at <= expires_at)
);

-- @ The newest token of a run.
create index redeemed_token_by_run on homeregion_control.redeemed_token (run_id, at);

-- @ Those that were used before.
insert into homeregion_control.redeemed_token (hash, run_id, plan_id, expires_at, at, login)
select a.token_hash, a.run_id, a.plan_id, a.token_expires_at, a.at, null from homeregion_control.acknowledgement a where a.token_hash is not null;

-- @ An acknowledgement says when its token was used.
alter table homeregion_control.acknowledgement add column token_used_at timestamptz;

-- @ The same of those that were made before.
update homeregion_control.acknowledgement set token_used_at = at where token_hash is not null;

-- @ It is judged anew below, by when it was used.
alter table homeregion_control.acknowledgement drop constraint acknowledgement_in_time, drop constraint acknowledgement_with_token;

-- @ In time is who used the token in its time, however long others took to agree.
alter table homeregion_control.acknowledgement add constraint acknowledgement_in_time
  check (token_used_at is null or token_used_at <= token_expires_at);

-- @ A token comes with its time and its use.
alter table homeregion_control.acknowledgement add constraint acknowledgement_with_token check (
  (kind = 'token') = (token_hash is not null) and (kind = 'token') = (token_expires_at is not null) and (kind = 'token') = (token_used_at is not null)
);

-- @ A run acknowledges with no token but its own.
alter table homeregion_control.acknowledgement add constraint acknowledgement_token_redeemed
  foreign key (token_hash, run_id, token_used_at) references homeregion_control.redeemed_token (hash, run_id, at);
