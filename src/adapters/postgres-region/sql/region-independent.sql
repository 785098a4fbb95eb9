-- One database a region: whoever writes in it writes in this region.

-- @ This database's region, fixed at installation: a setting could be changed by any session.
create or replace function homeregion.local_region() returns text language sql immutable parallel safe
as $body$ select {{region}}::pg_catalog.text $body$

-- @ Home of keys that nobody registered, or null.
create or replace function homeregion.default_home() returns text language sql immutable parallel safe
as $body$ select {{default_home}}::pg_catalog.text $body$
