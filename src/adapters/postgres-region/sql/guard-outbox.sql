-- The outbox: events are guarded like business rows, except that a relay may go on marking them as published after the fence, and that
-- published rows may be purged wherever they are.

-- @ BEFORE UPDATE of the outbox: setting {{published_at}} alone is always allowed, whatever else changes is a write to the key.
create or replace function homeregion.guard_outbox_update() returns trigger language plpgsql volatile security definer as $body$
declare
  n pg_catalog.record;
begin
  n := new;
  n.{{published_at}} := old.{{published_at}};
  -- *= compares images: it needs no equality operator of the columns' types, and no search_path.
  if n operator(pg_catalog.*=) old then return new; end if;
  perform homeregion.check_key(old.{{column}}::pg_catalog.text);
  perform homeregion.check_key(new.{{column}}::pg_catalog.text);
  return new;
end $body$

-- @ BEFORE DELETE of the outbox: what the broker has acknowledged may be purged, an event that has not left may not.
create or replace function homeregion.guard_outbox_delete() returns trigger language plpgsql volatile security definer as $body$
begin
  if old.{{published_at}} is not null then return old; end if;
  perform homeregion.check_key(old.{{column}}::pg_catalog.text);
  return old;
end $body$
