import type { Config, RegionConfig } from '../../domain/config.ts'
import { type Connection, createConnection, type Secrets } from '../postgres/connection.ts'
import { boundaryError } from './boundary-error.ts'

/** Sessions of a region's operator, by the name they show in pg_stat_activity. */
export function operatorSessions(region: RegionConfig, config: Config, secrets: Secrets, callTimeoutMs = config.policy.callTimeoutMs) {
  return (applicationName: string): Connection =>
    createConnection({
      login: region.database.operator,
      secrets,
      name: `${region.name} database`,
      applicationName,
      callTimeoutMs,
      unreachable: 'region-unreachable',
    })
}

/** Runs work of a region's boundary; what its database raises comes out as coded errors of that region. */
export function codedFor(region: string): <T>(work: () => Promise<T>) => Promise<T> {
  return async work => {
    try {
      return await work()
    } catch (error) {
      throw boundaryError(error, region)
    }
  }
}
