import type { Config, RegionConfig, SecretSink } from '../../../domain/config.ts'
import { isHomeregionError } from '../../../domain/errors.ts'
import type { Fence, FenceStatus } from '../../../domain/fence.ts'
import type { FaultPoint } from '../../../domain/ports.ts'
import type { Sink } from '../../../domain/sink.ts'
import { createConnection } from '../../postgres/connection.ts'
import type { Secrets } from '../../system/secrets.ts'
import { boundaryError } from '../boundary-error.ts'
import { fencerOf } from '../topology.ts'
import { applyCredentials } from './credentials-apply.ts'
import { type CredentialsConfig, type CredentialsContext, failed, readStanding } from './credentials-context.ts'
import { liftCredentials } from './credentials-lift.ts'
import { planCredentials } from './credentials-plan.ts'
import { proveCredentials } from './credentials-proof.ts'
import { createCredentialsRecord } from './credentials-record.ts'
import { createTurn } from './turn.ts'

/**
 * The writers' logins as a fence: none may log in, none is logged in, and the secret they knew is worth nothing any more. The new one waits in
 * its sink for the day the region may write again.
 */
export function createCredentialsFence(
  region: RegionConfig,
  fence: CredentialsConfig,
  config: Config,
  secrets: Secrets,
  sinkOf: (sink: SecretSink) => Sink,
  fault: FaultPoint,
): Fence {
  const session = (applicationName: string) =>
    createConnection({
      login: fencerOf(region),
      secrets,
      name: `${region.name} database`,
      applicationName,
      callTimeoutMs: config.policy.callTimeoutMs,
      unreachable: 'region-unreachable',
    })
  const changes = session('homeregion fence')
  const reads = session('homeregion fence observer')
  const context = (connection: typeof changes): CredentialsContext => ({
    region,
    fence,
    config,
    secrets,
    sinkOf,
    connection,
    record: createCredentialsRecord(connection, region.name, fence.name),
    fault,
    inForce,
  })
  const inForce = new Map<string, string>()
  const changing = context(changes)
  const reading = context(reads)
  const turn = createTurn(changes, `${region.name} fence ${fence.name}`, config.policy.callTimeoutMs)
  const change = async (verb: 'apply' | 'lift', work: () => Promise<readonly string[]>): Promise<readonly string[]> => {
    try {
      return await turn(work)
    } catch (error) {
      // Over the other session: the one that made the change may be what was lost.
      throw await failed(reading, verb, error)
    }
  }
  return {
    region: region.name,
    name: fence.name,
    kind: fence.kind,
    plan: async direction => {
      try {
        return await planCredentials(reading, direction)
      } catch (error) {
        throw boundaryError(error, region.name)
      }
    },
    apply: async cause => await change('apply', async () => await applyCredentials(changing, cause)),
    verify: async () => await proveCredentials(reading),
    lift: async (_, asked) => await change('lift', async () => await liftCredentials(changing, asked)),
    status: async () => await readStatus(reading),
    close: async () => void (await Promise.all([changes.close(), reads.close()])),
  }
}

async function readStatus(context: CredentialsContext): Promise<FenceStatus> {
  try {
    const [{ fence }, { lines }] = await Promise.all([context.record.read(), readStanding(context)])
    if (fence === null) return { state: 'lifted', since: null, cause: null, asked: null, holds: [] }
    return { ...fence, holds: lines }
  } catch (error) {
    const coded = isHomeregionError(error) ? error : boundaryError(error, context.region.name)
    return { state: 'unknown', since: null, cause: null, asked: null, holds: [coded.text.fact] }
  }
}
