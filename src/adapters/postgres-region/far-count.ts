import type { Config, RegionConfig } from '../../domain/config.ts'
import type { FarConsumer } from '../../domain/far-count.ts'
import type { Row, Secrets } from '../postgres/connection.ts'
import { createServicePool, type ServicePool } from '../postgres/service-pool.ts'
import { boundaryError } from './boundary-error.ts'
import { identifier, relation } from './quoting.ts'

const OWN_EVENTS = `('homeregion.barrier', 'homeregion.heartbeat')`

/** Reads with the operators' logins, which may see outbox and inbox. */
export function createFarConsumer(config: Config, secrets: Secrets): FarConsumer {
  const pools = new Map<string, ServicePool>()
  const rows = async (name: string, sql: string, parameters: readonly unknown[]): Promise<readonly Row[]> => {
    const region = config.regions.find(r => r.name === name)
    if (region === undefined) throw new RangeError(`there is no region ${name}`)
    const pool = pools.get(name) ?? open(region, config, secrets)
    pools.set(name, pool)
    try {
      return (await pool.query({ sql, parameters })).rows
    } catch (error) {
      throw boundaryError(error, name)
    }
  }
  const { outbox, inbox } = config
  const o = outbox.columns

  return {
    count: async (source, target, keys) => {
      const bound = [keys.map(k => k.key), keys.map(k => k.epoch)]
      const written = await rows(
        source,
        `select t.${identifier(o.eventId)}::text as id, t.${identifier(o.key)}::text as key, t.${identifier(o.aggregateType)}::text as type,
  t.${identifier(o.aggregateId)}::text as aggregate, t.${identifier(o.aggregateVersion)}::text as version,
  t.${identifier(o.eventType)}::text in ${OWN_EVENTS} as own
from ${relation(outbox)} t join unnest($1::text[], $2::bigint[]) as k(key, epoch)
  on t.${identifier(o.key)}::text = k.key and t.${identifier(o.ownerEpoch)} = k.epoch`,
        bound,
      )
      const applied = await rows(
        target,
        `select ${identifier(inbox.columns.eventId)}::text as id, count(*)::int as times from ${relation(inbox)}
where ${identifier(inbox.columns.eventId)}::text = any ($1) group by 1`,
        [written.map(row => String(row.id))],
      )
      const times = new Map(applied.map(row => [String(row.id), Number(row.times)]))
      const writes = written.filter(row => row.own !== true)
      const versions = versionsOf(writes)
      return {
        events: written.length,
        writes: writes.length,
        duplicates: versions.repeated + [...times.values()].reduce((sum, n) => sum + n - 1, 0),
        gaps: versions.missing + written.filter(row => !times.has(String(row.id))).length,
      }
    },
    close: async () => void (await Promise.all([...pools.values()].map(async pool => await pool.close()))),
  }
}

/** Per aggregate: versions rise by one from the first that is there. */
function versionsOf(rows: readonly Row[]): { readonly repeated: number; readonly missing: number } {
  const aggregates = new Map<string, bigint[]>()
  for (const row of rows) {
    const id = JSON.stringify([row.key, row.type, row.aggregate])
    const known = aggregates.get(id) ?? []
    known.push(BigInt(String(row.version)))
    aggregates.set(id, known)
  }
  let [repeated, missing] = [0, 0]
  for (const versions of aggregates.values()) {
    const distinct = [...new Set(versions)].sort((a, b) => (a < b ? -1 : 1))
    repeated += versions.length - distinct.length
    missing += Number((distinct.at(-1) ?? 0n) - (distinct[0] ?? 0n)) + 1 - distinct.length
  }
  return { repeated, missing }
}

function open(region: RegionConfig, config: Config, secrets: Secrets): ServicePool {
  return createServicePool({
    ...{ login: region.database.operator, secrets, name: `${region.name} database`, applicationName: 'homeregion drill' },
    ...{ size: 1, callTimeoutMs: config.policy.callTimeoutMs },
  })
}
