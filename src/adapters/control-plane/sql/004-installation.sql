-- Version 4 of the control plane.

-- @ Tells this control plane from another one at the same address: what a machine kept for one is not handed over to the other.
alter table homeregion_control.installation add column identity uuid not null default gen_random_uuid();
