import type { Config, DatabaseLogin, RegionConfig } from '../../domain/config.ts'
import { literal, literalArray, loginRole } from './quoting.ts'

/** What `homeregion.installed` names as the region of a database that all regions share; no region may be named so. */
export const ALL_REGIONS = '*'

/** The region that a database's boundary is installed for. */
export function boundaryRegion(config: Config, region: RegionConfig): string {
  return config.topology === 'shared' ? ALL_REGIONS : region.name
}

/** Regions whose logins work in this region's database. */
export function regionsThere(config: Config, region: RegionConfig): readonly RegionConfig[] {
  return config.topology === 'shared' ? config.regions : [region]
}

export function operatorsThere(config: Config, region: RegionConfig): readonly string[] {
  return [...new Set(regionsThere(config, region).map(r => loginRole(r.database.operator)))]
}

/** The login that fences a region: it may alter the writers' roles and end their sessions. */
export function fencerOf(region: RegionConfig): DatabaseLogin {
  return region.database.fencer ?? region.database.admin ?? region.database.operator
}

export function fencersThere(config: Config, region: RegionConfig): readonly string[] {
  return [...new Set(regionsThere(config, region).map(r => loginRole(fencerOf(r))))]
}

/** The login that brings a region level after it was failed over: it owns the guarded tables, or is superuser. */
export function levellerOf(region: RegionConfig): DatabaseLogin {
  return region.database.admin ?? region.database.operator
}

export function levellersThere(config: Config, region: RegionConfig): readonly string[] {
  return [...new Set(regionsThere(config, region).map(r => loginRole(levellerOf(r))))]
}

/** Whoever may put up and lift the fence of a whole region. */
export function callersThere(config: Config, region: RegionConfig): readonly string[] {
  return [...new Set([...operatorsThere(config, region), ...fencersThere(config, region)])]
}

export type WriterRegion = { readonly role: string; readonly region: string }

/** Which login writes for which region of a shared database; null where a region has its own, and every login writes for it. */
export function writerRegions(config: Config): readonly WriterRegion[] | null {
  if (config.topology === 'independent') return null
  return config.regions.flatMap(r => r.database.writers.map(w => ({ role: w.role, region: r.name })))
}

/**
 * What the templates of the guard say in each topology. The independent guard compares nothing but the key: that is its whole cost, so the text
 * differs and not a value that it would look up. In `copies`, a copy of a foreign change is let in; a shared database has none.
 */
export function guardTexts(config: Config): Record<string, string> {
  if (config.topology === 'independent')
    return {
      copies: `  if pg_catalog.current_setting('session_replication_role') operator(pg_catalog.=) 'replica' or homeregion.is_applying() then
    perform homeregion.check_copy(k);
    return;
  end if;
`,
      and_here: '',
      old_home_here: 'old.home_region = homeregion.local_region()',
      new_home_stays: 'new.home_region = homeregion.local_region()',
      new_home_here: 'new.home_region = homeregion.local_region()',
      home_column: '',
      home_value: '',
      home_of_h: '',
      of_region: '',
      region_known: 'p_region = homeregion.local_region()',
    }
  return {
    copies: '',
    and_here: ' and w.home_region operator(pg_catalog.=) homeregion.local_region()',
    old_home_here: 'old.home_region is not null',
    new_home_stays: 'new.home_region = old.home_region',
    new_home_here: 'new.home_region is not null',
    home_column: ', home_region',
    home_value: ', new.home_region',
    home_of_h: ', h.home_region',
    of_region: ' where w.home_region = p_region',
    region_known: 'p_region is not null',
  }
}

export function regionValues(config: Config, region: RegionConfig): Record<string, string> {
  const writers = writerRegions(config)
  if (writers !== null)
    return { writer_roles: literalArray(writers.map(w => w.role)), writer_regions: literalArray(writers.map(w => w.region)) }
  return {
    region: literal(region.name),
    default_home: config.ownership.defaultHome === null ? 'null' : literal(config.ownership.defaultHome),
  }
}
