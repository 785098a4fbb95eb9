import type { Config, RegionConfig } from '../../domain/config.ts'
import { fail, type Observation, pass, unknown } from '../../domain/evidence.ts'
import { OPERATION, PATTERN_TYPE, PERMISSION, RESOURCE_TYPE } from './acl-protocol.ts'
import { openBrokers } from './broker-requests.ts'
import { bindingText, type DenyBinding, includes, type KafkaFenceConfig } from './deny-binding.ts'
import type { KafkaConnection, SecretReader } from './kafka-client.ts'
import { messageOf } from './refused-produce.ts'

/** Another region's cluster, as its stream login sees it. */
export type OtherCluster = {
  readonly region: string
  /** null: it could not be read. */
  readonly clusterId: string | null
  /** Those of the fence's bindings that stand there too; null: they could not be read. */
  readonly denies: readonly DenyBinding[] | null
  readonly why: string | null
}

export async function readOtherClusters(
  region: RegionConfig,
  config: Config,
  secrets: SecretReader,
  wanted: readonly DenyBinding[],
): Promise<readonly OtherCluster[]> {
  const others = config.regions.filter(r => r.name !== region.name)
  return await Promise.all(others.map(async other => await readOther(other, config, secrets, wanted)))
}

async function readOther(
  other: RegionConfig,
  config: Config,
  secrets: SecretReader,
  wanted: readonly DenyBinding[],
): Promise<OtherCluster> {
  const connection: KafkaConnection = {
    login: other.kafka,
    secrets,
    name: `${other.name} Kafka`,
    clientId: 'homeregion',
    callTimeoutMs: config.policy.callTimeoutMs,
  }
  let clusterId: string | null = null
  try {
    const brokers = await openBrokers(connection, [other.kafka.outboxTopic])
    try {
      clusterId = brokers.clusterId
      const [any = -1] = brokers.alive
      const { resources } = await brokers.on(any, 'bindings', async broker => {
        return await broker.describeAcls({
          resourceType: RESOURCE_TYPE.any,
          resourceName: null,
          resourcePatternType: PATTERN_TYPE.literal,
          principal: null,
          host: null,
          operation: OPERATION.write,
          permissionType: PERMISSION.deny,
        })
      })
      const found = resources.flatMap(({ resourceType, resourceName: name, acls }) => {
        const resource = resourceType === RESOURCE_TYPE.topic ? 'topic' : 'transactional-id'
        return acls.map(({ principal }) => ({ resource, name, principal }) as const)
      })
      return { region: other.name, clusterId, denies: wanted.filter(w => includes(found, w)), why: null }
    } finally {
      await brokers.close()
    }
  } catch (error) {
    return { region: other.name, clusterId, denies: null, why: messageOf(error) }
  }
}

/**
 * What a DENY here would also stop there: regions on this very cluster that use one of the fence's topics or transactional ids. By
 * cluster id, or by a common address where the other could not be asked.
 */
export function sharedWith(
  region: RegionConfig,
  config: Config,
  fence: KafkaFenceConfig,
  clusterId: string,
  others: readonly OtherCluster[],
): readonly { readonly region: string; readonly what: string }[] {
  return config.regions
    .filter(r => r.name !== region.name)
    .flatMap(other => {
      const seen = others.find(o => o.region === other.name)?.clusterId ?? null
      const same = seen === null ? other.kafka.brokers.some(b => region.kafka.brokers.includes(b)) : seen === clusterId
      if (!same) return []
      const theirs = other.fences.filter(f => f.kind === 'kafka')
      const topics = new Set([other.kafka.outboxTopic, ...theirs.flatMap(f => f.topics)])
      const ids = new Set(theirs.flatMap(f => f.producers.flatMap(p => p.transactionalIds)))
      return [
        ...fence.topics.filter(t => topics.has(t)).map(t => ({ region: other.name, what: `topic ${t}` })),
        ...fence.producers
          .flatMap(p => p.transactionalIds)
          .filter(id => ids.has(id))
          .map(id => ({ region: other.name, what: `transactional id ${id}` })),
      ]
    })
}

/**
 * MirrorMaker copies bindings with their topics unless it is told not to, and never takes a copy away: the fence would stand in the region
 * that is to write next. `before`: what stood there already when this fence was applied, by region; null where it was not read.
 */
export function judgeTravel(
  others: readonly OtherCluster[],
  clusterId: string | null,
  before: Readonly<Record<string, readonly DenyBinding[] | null>>,
  mirrored: boolean,
): readonly Observation[] {
  return others
    .filter(o => o.clusterId === null || o.clusterId !== clusterId)
    .map(({ region, denies, why }) => {
      const observer = `${region} Kafka`
      const required = 'no copy of this DENY on another cluster'
      if (denies === null) {
        const text = `not read: ${why ?? ''}`
        // Without a mirror nothing of ours copies bindings, and a region that is away must not keep another one's fence unproved.
        return mirrored ? unknown(observer, required, text) : pass(observer, required, `${text}; no mirror that could copy it`)
      }
      const [copied] = denies.filter(d => !includes(before[region] ?? [], d))
      if (copied === undefined) return pass(observer, required, denies.length === 0 ? 'no copy' : 'only what stood there before')
      const text = `${bindingText(copied)} stands there: a mirror copied it (sync.topic.acls.enabled must be false), or that region is fenced too`
      return fail(observer, required, text)
    })
}
