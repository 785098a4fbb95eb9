import type { Config, RegionConfig } from '../../domain/config.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import { type Brokers, openBrokers } from './broker-requests.ts'
import { type AclResource, type DenyBinding, type KafkaFenceConfig, resourcesOf, wantedBindings } from './deny-binding.ts'
import type { KafkaConnection, SecretReader } from './kafka-client.ts'

/** All that the parts of one region's Kafka fence go by. */
export type FenceSetting = {
  readonly region: RegionConfig
  readonly fence: KafkaFenceConfig
  readonly config: Config
  readonly secrets: SecretReader
  readonly connection: KafkaConnection
  readonly topics: readonly [string, ...string[]]
  readonly transactionalIds: readonly string[]
  readonly wanted: readonly DenyBinding[]
  readonly resources: readonly AclResource[]
}

export function fenceSetting(region: RegionConfig, fence: KafkaFenceConfig, config: Config, secrets: SecretReader): FenceSetting {
  const { brokers, ssl, sasl, outboxTopic } = region.kafka
  const wanted = wantedBindings(fence)
  const [first = outboxTopic, ...rest] = fence.topics
  return {
    region,
    fence,
    config,
    secrets,
    connection: {
      login: { brokers, ssl, sasl: fence.admin ?? sasl },
      secrets,
      name: `${region.name} Kafka`,
      clientId: 'homeregion-fence',
      callTimeoutMs: config.policy.callTimeoutMs,
    },
    topics: [first, ...rest],
    transactionalIds: [...new Set(fence.producers.flatMap(p => p.transactionalIds))],
    wanted,
    resources: resourcesOf(wanted),
  }
}

/** One conversation with the cluster. What fails inside, before anything was changed, says so. */
export async function withBrokers<T>({ connection, topics }: FenceSetting, work: (brokers: Brokers) => Promise<T>): Promise<T> {
  let brokers: Brokers | null = null
  try {
    brokers = await openBrokers(connection, topics)
    return await work(brokers)
  } catch (error) {
    throw isHomeregionError(error) && error.text.state === undefined ? withState(error, 'Nothing was changed.') : error
  } finally {
    await brokers?.close()
  }
}

function withState(error: HomeregionError, state: string): HomeregionError {
  const { cause, retriable, fields } = error
  return new HomeregionError(error.code, { ...error.text, state }, { cause, retriable, fields })
}
