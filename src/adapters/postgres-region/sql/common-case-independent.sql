(case
  when pg_catalog.current_setting('homeregion.epoch', true) is null then not w.require_epoch
  when pg_catalog.current_setting('homeregion.epoch', true) operator(pg_catalog.=) '' then not w.require_epoch
  else pg_catalog.current_setting('homeregion.epoch', true) operator(pg_catalog.=) w.epoch::pg_catalog.text
end
and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed'
and pg_catalog.current_setting('session_replication_role') operator(pg_catalog.<>) 'replica'
and not pg_catalog.pg_has_role(session_user, 'homeregion_apply'::pg_catalog.name, 'MEMBER'){{lease}})
