import type { Config, RegionConfig } from '../../../domain/config.ts'
import { HomeregionError } from '../../../domain/errors.ts'
import type { Connection } from '../../postgres/connection.ts'
import type { WriteScope } from './granted-writes.ts'

type FenceName = { readonly region: string; readonly name: string }

export function stillThere(holders: readonly string[], at: FenceName, ended: number): HomeregionError {
  const who = holders.length === 0 ? 'sessions that could not be told' : holders.slice(0, 5).join('; ')
  const prepared = holders.some(h => h.startsWith('prepared'))
  return new HomeregionError(
    'fence-failed',
    {
      fact: `fence ${at.name} of ${at.region}: writes made before it can still be committed: ${who}`,
      state: `No role that is fenced may write the tables any more; ${ended} session${ended === 1 ? ' was' : 's were'} ended. It is on record as applying.`,
      next: prepared
        ? `settle each (COMMIT PREPARED or ROLLBACK PREPARED), then homeregion fence apply ${at.region} --fence ${at.name} --reason …`
        : `homeregion fence apply ${at.region} --fence ${at.name} --reason …`,
    },
    { retriable: true, fields: { ...at, holders } },
  )
}

export function refuseUnreachable(what: readonly string[], at: FenceName, verb: 'applied' | 'lifted'): void {
  if (what.length === 0) return
  throw new HomeregionError(
    'privilege-missing',
    {
      fact: `fence ${at.name} of ${at.region} cannot be ${verb}: the fencer's login cannot act as the grantor of ${what.slice(0, 5).join('; ')}${what.length > 5 ? `; and ${what.length - 5} more` : ''}`,
      state: 'Nothing was changed: what is revoked has to be able to come back as it was.',
      next: 'make the fencer a member of those grantors, or a superuser; or have them take these grants back',
    },
    { fields: { ...at, privileges: what } },
  )
}

export function refuseShared(config: Config, region: RegionConfig): void {
  if (config.topology === 'independent') return
  throw new HomeregionError('fence-failed', {
    fact: `${region.name} shares its database with the other regions: a read-only fence would stop them too`,
    state: 'Nothing was changed.',
    next: `homeregion fence apply ${region.name} --fence boundary --reason …`,
  })
}

export async function allThere(connection: Connection, scope: WriteScope, region: string): Promise<void> {
  const { rows } = await connection.query('read', 'select n from unnest($1::text[]) n where to_regclass(n) is null', [scope.tables])
  if (rows.length === 0) return
  throw new HomeregionError('config-invalid', {
    fact: `${region} database has no ${rows.map(r => String(r.n)).join(', ')}`,
    state: 'Nothing was changed.',
    next: 'homeregion config show',
  })
}
