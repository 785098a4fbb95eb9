import { HomeregionError } from '../../domain/errors.ts'
import { type BrokerView, mayChange, missingRight } from './acl-bindings.ts'
import type { Brokers } from './broker-requests.ts'
import { type AclResource, bindingText, type DenyBinding, includes, resourcesOf, resourceText } from './deny-binding.ts'
import type { FenceRecord } from './fence-record.ts'
import type { FenceSetting } from './fence-setting.ts'
import { readEnds } from './log-ends.ts'
import { type OtherCluster, sharedWith } from './other-clusters.ts'
import { mayEndTransaction, missingWrite } from './transaction-takeover.ts'

function refused(fact: string, next: string): HomeregionError {
  return new HomeregionError('fence-failed', { fact, state: 'Nothing was changed.', next })
}

/** A fence that would stop more than the region's producers, or ourselves. */
export function refuseTooWide({ fence, region, connection }: FenceSetting): void {
  const names = [...fence.topics, ...fence.producers.flatMap(p => p.transactionalIds)]
  const edit = `name what ${region.name}'s producers use in the fence's configuration`
  if (names.includes('*'))
    throw refused(`the fence of ${connection.name} names "*": that is every topic or transactional id there is`, edit)
  for (const { principal } of fence.producers) {
    if (principal === 'User:*')
      throw refused(`the fence of ${connection.name} names User:*: it would stop its own login and every replication`, edit)
    if (connection.login.sasl !== null && principal === `User:${connection.login.sasl.username}`) {
      throw refused(
        `the fence of ${connection.name} would stop ${principal}, which is its own login`,
        'give the fence an admin login of its own, or the producers theirs',
      )
    }
  }
}

/** Called when the rest is lifted: what is on record as the fence's, still stands, and is nothing its configuration could have made. */
export function refuseStrange({ connection, fence }: FenceSetting, standing: readonly DenyBinding[]): void {
  if (standing.length === 0) return
  const named = standing.map(bindingText).join(', ')
  throw new HomeregionError('fence-failed', {
    fact: `${connection.name}: left, because the configuration of fence ${fence.name} names no such thing although it is on record as the fence's: ${named}. Configure it again, or remove it with kafka-acls --remove, then lift once more`,
  })
}

/** A DENY stops a principal on the whole cluster: also what another region does there with the same topic or transactional id. */
export function refuseShared(setting: FenceSetting, clusterId: string, others: readonly OtherCluster[]): void {
  const [shared] = sharedWith(setting.region, setting.config, setting.fence, clusterId, others)
  if (shared === undefined) return
  throw refused(
    `${shared.region} uses ${shared.what} on the same cluster as ${setting.region.name}: a DENY would stop both`,
    `give ${shared.region} a topic, producers and transactional ids of its own on that cluster, or leave its Kafka fence to it`,
  )
}

/**
 * Where a resource has no binding at all, everybody may use it if the cluster says so (allow.everyone.if.no.acl.found), and the first
 * binding, whatever it says, turns everybody else away: consumers and replication too.
 */
export function refuseFirstBinding(views: readonly BrokerView[], missing: readonly DenyBinding[], record: FenceRecord): void {
  for (const resource of resourcesOf(missing)) {
    const seen = views.flatMap(v => v.resources ?? []).filter(r => r.resource === resource.resource && r.name === resource.name)
    if (seen.every(r => r.others > 0 || r.denies.some(d => !includes(record.added, d)))) continue
    throw refused(
      `${resourceText(resource)} has no access rule at all: the first one would turn away everybody who uses it`,
      `say who may use it first: kafka-acls --add --allow-principal 'User:*' --operation All ${option(resource)}`,
    )
  }
}

function option({ resource, name }: AclResource): string {
  return `--${resource} '${name.replaceAll("'", `'\\''`)}'`
}

/** Everything the fence will need, asked in ways that change nothing: half a fence is the worst outcome. */
export async function refuseWithoutRights(brokers: Brokers, transactionalIds: readonly string[]): Promise<void> {
  for (const { topic, error } of brokers.topics) {
    if (error === 'TOPIC_AUTHORIZATION_FAILED') throw missingRight(brokers, `DESCRIBE on topic ${topic}`, new Error(error))
    if (error !== null) throw refused(`${brokers.name}: topic ${topic}: ${error}`, 'correct the topics of the fence in the configuration')
  }
  await mayChange(brokers)
  const [any = -1] = brokers.alive
  for (const id of transactionalIds) {
    if ((await mayEndTransaction(brokers, any, id)) === null) throw missingWrite(brokers, id)
  }
  await readEnds(brokers)
}
