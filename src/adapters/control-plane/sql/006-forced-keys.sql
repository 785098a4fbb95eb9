-- Version 6 of the control plane: a forced failover of thousands of keys is checked once where it was checked twice.

-- @ It is added again below, for the rows that need it.
alter table homeregion_control.ownership_log drop constraint ownership_log_run;

-- @ What it was checked by.
alter table homeregion_control.ownership_log drop column changing_run;

-- @ The run that took the key. Of a forced row it is the forced failover that says so: the row refers to it by run and key, and it to the keys of the
-- @ run, so that a second look at them would show the same.
alter table homeregion_control.ownership_log add column changing_run text
  generated always as (case when forced_id is null then nullif(run_id, '') end) stored;

-- @ Only a run that took the key can write its log.
alter table homeregion_control.ownership_log add constraint ownership_log_run
  foreign key (changing_run, key) references homeregion_control.run_key (run_id, key);
