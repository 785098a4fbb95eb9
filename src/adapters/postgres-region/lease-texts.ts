import { createHash } from 'node:crypto'
import type { Config, RegionConfig } from '../../domain/config.ts'
import { literal, literalArray } from './quoting.ts'
import { regionsThere } from './topology.ts'

/** Regions in this region's database whose writes stop at their lease's end. */
export function stoppingThere(config: Config, region: RegionConfig): readonly string[] {
  return regionsThere(config, region)
    .filter(r => r.lease?.onAgentOutage === 'stop')
    .map(r => r.name)
}

type LeaseTexts = {
  /** Within the query of the common case, and after it. */
  readonly common_lease: string
  readonly and_open: string
  readonly lease: string
  readonly at_commit: string
}

/** What the guard's templates say of the lease: nothing at all where no region stops, so that it costs nothing there. */
export function leaseTexts(config: Config, region: RegionConfig): LeaseTexts {
  const stopping = stoppingThere(config, region)
  if (stopping.length === 0) return { common_lease: '', and_open: '', lease: '', at_commit: '' }
  const apart = config.topology === 'independent'
  return {
    common_lease: apart ? '' : `\nand ${openOfHome(stopping)}`,
    // An expression that PL/pgSQL evaluates by itself is made ready once for each transaction, one of a query for each row.
    and_open: apart ? ` and ${isOpen(region.name)}` : '',
    lease: `  if homeregion.lease_over(homeregion.local_region()) and not homeregion.own_write(k) then
    perform homeregion.refuse_lease(homeregion.local_region(), homeregion.lease_words(homeregion.local_region()));
  end if;
`,
    at_commit: '  if found then perform homeregion.check_at_commit(); end if;\n',
  }
}

export function leaseStopValues(config: Config, region: RegionConfig): Record<string, string> {
  const apart = config.topology === 'independent'
  const stopping = stoppingThere(config, region)
  return {
    stop_regions: literalArray(stopping),
    lease_sequences: `${literalArray(stopping.map(sequenceOf))}::text[]`,
    sequence_of_region: stopping.map(r => `when ${literal(r)} then ${sequence(r)}`).join(' '),
    lease_end: `case ${stopping.map(r => `when p_region ${is(r)} then ${endOf(r)}`).join(' ')} end`,
    open_here: apart ? isOpen(region.name) : 'not homeregion.lease_over(homeregion.local_region())',
    // Copies of foreign changes are no writes of this region.
    unless_applying: apart ? 'if homeregion.is_applying() then return; end if;\n    ' : '',
    own_write: apart ? OWN_WRITE : 'false',
  }
}

/** A region's name may be longer than a name of PostgreSQL. */
function sequenceOf(region: string): string {
  return `lease_end_${createHash('sha256').update(region).digest('hex').slice(0, 8)}`
}

function sequence(region: string): string {
  return `'homeregion.${sequenceOf(region)}'::pg_catalog.regclass`
}

function is(region: string): string {
  return `operator(pg_catalog.=) ${literal(region)}::pg_catalog.text`
}

/** Null where no lease was ever granted, and what is compared with null is not open. */
function endOf(region: string): string {
  return `pg_catalog.to_timestamp(pg_catalog.pg_sequence_last_value(${sequence(region)})::pg_catalog.float8 operator(pg_catalog./) 1000000::pg_catalog.float8)`
}

function isOpen(region: string): string {
  return `pg_catalog.clock_timestamp() operator(pg_catalog.<) ${endOf(region)}`
}

/** Of the key's home in a shared database; a region that has no such lease is always open. */
function openOfHome(stopping: readonly string[]): string {
  return `(case ${stopping.map(r => `when w.home_region ${is(r)} then ${isOpen(r)}`).join(' ')} else true end)`
}

// Nobody but the fence makes a key writable that is draining, and nobody but it says FENCED: a row of this very transaction is its mark.
const OWN_WRITE = `homeregion.is_heartbeat(p_key)
    or exists (
      select from homeregion.ownership o
      where o.key operator(pg_catalog.=) p_key and o.state operator(pg_catalog.=) 'FENCED'
        and o.xmin operator(pg_catalog.=) pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.xid
    )
    or exists (
      select from homeregion.writable w, homeregion.ownership o
      where w.key operator(pg_catalog.=) p_key and o.key operator(pg_catalog.=) p_key and o.state operator(pg_catalog.=) 'DRAINING'
        and w.xmin operator(pg_catalog.=) pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.xid
    )`
