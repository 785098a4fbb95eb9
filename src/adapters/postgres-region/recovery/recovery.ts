import type { Config, RegionConfig } from '../../../domain/config.ts'
import { HomeregionError } from '../../../domain/errors.ts'
import type { LostKey, Recovery } from '../../../domain/recovery.ts'
import type { Secrets } from '../../postgres/connection.ts'
import type { ServicePool } from '../../postgres/service-pool.ts'
import { boundaryError, sqlstate } from '../boundary-error.ts'
import { loginRole } from '../quoting.ts'
import { levellerOf } from '../topology.ts'
import { findLost } from './find-lost.ts'
import { levelKeys, lockKeys } from './level.ts'
import { asCopy, inSnapshot, openPool } from './session.ts'

/** Reads with the operators' logins; replaces rows with the administrator's, since no other may write the service's tables. */
export function createRecovery(config: Config, secrets: Secrets): Recovery {
  const pools = new Map<string, ServicePool>()
  const pool = (name: string, writes: boolean): ServicePool => {
    const region = named(config, name)
    const id = `${name} ${writes ? 'writes' : 'reads'}`
    const known = pools.get(id)
    if (known !== undefined) return known
    const made = openPool(region, writes ? levellerOf(region) : region.database.operator, config, secrets)
    pools.set(id, made)
    return made
  }
  return {
    findLost: async (source, home, keys) =>
      await coded(
        source,
        async () =>
          await inSnapshot(
            pool(source, false),
            async here =>
              // Second: an event that left meanwhile is seen at least once.
              await inSnapshot(pool(home, false), async there => await findLost(config, source, keys, here, there)),
          ),
      ),
    level: async (source, home, keys, decided) =>
      await coded(source, async () => await levelled({ config, pool, source, home, keys, decided })),
    close: async () => void (await Promise.all([...pools.values()].map(async p => await p.close()))),
  }
}

type Levelling = {
  readonly config: Config
  readonly pool: (name: string, writes: boolean) => ServicePool
  readonly source: string
  readonly home: string
  readonly keys: readonly LostKey[]
  readonly decided: ReadonlySet<string>
}

async function levelled({ config, pool, source, home, keys, decided }: Levelling) {
  try {
    return await asCopy(pool(source, true), config.policy.callTimeoutMs, async here => {
      await lockKeys(here, keys)
      return await inSnapshot(
        pool(home, false),
        async there => await levelKeys({ config, region: source, homeName: home, source: here, decided }, keys, there),
      )
    })
  } catch (error) {
    if (sqlstate(error) !== '42501') throw error
    const role = loginRole(levellerOf(named(config, source)))
    throw new HomeregionError(
      'privilege-missing',
      {
        fact: `${role} may not bring ${source} level: ${error instanceof Error ? error.message : String(error)}`,
        state: 'Nothing was replaced in these keys.',
        next: `grant set on parameter session_replication_role to ${role}, and the privileges on the guarded tables; or name a superuser as the region's admin; then homeregion init`,
      },
      { cause: error },
    )
  }
}

function named(config: Config, name: string): RegionConfig {
  const found = config.regions.find(r => r.name === name)
  if (found !== undefined) return found
  throw new HomeregionError('unknown-region', { fact: `there is no region named ${name}`, state: 'Nothing was changed.' })
}

async function coded<T>(region: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw boundaryError(error, region)
  }
}
