(case
  when pg_catalog.current_setting('homeregion.epoch', true) is null then not w.require_epoch
  when pg_catalog.current_setting('homeregion.epoch', true) operator(pg_catalog.=) '' then not w.require_epoch
  else pg_catalog.current_setting('homeregion.epoch', true) operator(pg_catalog.=) w.epoch::pg_catalog.text
end
and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed'
and w.home_region operator(pg_catalog.=) (select m.region from homeregion.writer_region m where m.role operator(pg_catalog.=) session_user){{lease}})
