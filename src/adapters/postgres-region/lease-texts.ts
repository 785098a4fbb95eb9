import type { Config, RegionConfig } from '../../domain/config.ts'
import { literal, literalArray } from './quoting.ts'
import { regionsThere } from './topology.ts'

/** Regions in this region's database whose writes stop at their lease's end. */
export function stoppingThere(config: Config, region: RegionConfig): readonly string[] {
  return regionsThere(config, region)
    .filter(r => r.lease?.onAgentOutage === 'stop')
    .map(r => r.name)
}

/** What the guard's templates say of the lease: nothing at all where no region stops, so that it costs nothing there. */
export function leaseTexts(config: Config, region: RegionConfig): { readonly common_lease: string; readonly lease: string } {
  const stopping = stoppingThere(config, region)
  if (stopping.length === 0) return { common_lease: '', lease: '' }
  const open = (whose: string) =>
    `pg_catalog.clock_timestamp() operator(pg_catalog.<) (select l.expires_at from homeregion.lease l where l.region operator(pg_catalog.=) ${whose})`
  return {
    common_lease:
      config.topology === 'independent'
        ? `\nand ${open(`${literal(region.name)}::pg_catalog.text`)}`
        : `\nand (w.home_region operator(pg_catalog.<>) all (${literalArray(stopping)}::pg_catalog.text[]) or ${open('w.home_region')})`,
    lease: `  if homeregion.lease_over(homeregion.local_region()) and not homeregion.own_write(k) then
    perform homeregion.refuse_lease(homeregion.local_region(), homeregion.lease_words(homeregion.local_region()));
  end if;
`,
  }
}

export function leaseStopValues(config: Config, region: RegionConfig): Record<string, string> {
  const apart = config.topology === 'independent'
  return {
    stop_regions: literalArray(stoppingThere(config, region)),
    here: apart ? `${literal(region.name)}::pg_catalog.text` : 'homeregion.local_region()',
    // Copies of foreign changes are no writes of this region.
    unless_applying: apart ? 'if homeregion.is_applying() then return; end if;\n    ' : '',
    own_write: apart ? OWN_WRITE : 'false',
  }
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
