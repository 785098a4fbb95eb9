-- Version 8 of the control plane: a lease that is over proves something only where the region has said that its boundary stops writes at the end.

-- @ What the region answered to its last grant that reached it. False until one did: what was granted before this version proves nothing.
alter table homeregion_control.region_lease add column stops boolean not null default false;

-- @ Whoever withholds it: a lease that is over and granted to nobody is over for every failover from the region. The row stays locked to the commit,
-- @ and what is committed puts the region in exile, so that it is not granted again.
create or replace function homeregion_control.forced_failover_lease() returns trigger language plpgsql as $$
begin
  perform 1 from homeregion_control.region_lease l where l.region = new.source for share;
  if not exists (
    select 1 from homeregion_control.region_lease l
    where l.region = new.source and l.withheld_by <> '' and l.generation > 0 and l.stops and l.over_at <= clock_timestamp()
  ) then
    raise exception using errcode = '{{lease_not_over}}',
      message = 'the lease of ' || new.source || ' is not over, is withheld by nobody, or its boundary never said that it stops writes at the end';
  end if;
  return new;
end
$$;
