import type { FenceStep } from '../../domain/fence.ts'
import type { Brokers } from './broker-requests.ts'
import { bindingText, type DenyBinding } from './deny-binding.ts'
import type { FenceSetting } from './fence-setting.ts'

/** The calls of `apply`, in their order. `missing`: bindings that do not stand yet. */
export function applySteps(setting: FenceSetting, brokers: Brokers, missing: readonly DenyBinding[]): readonly FenceStep[] {
  const { fence, region, config, transactionalIds, topics } = setting
  const place = brokers.name
  const step = (text: string, why: string): FenceStep => ({ place, text, why })
  const all = `broker ${brokers.alive.join(', ')}`
  return [
    ...missing.map(binding =>
      step(`CreateAcls ${bindingText(binding)} (literal, host *)`, binding.resource === 'topic' ? TOPIC_WHY : TRANSACTIONAL_WHY),
    ),
    step(`DescribeAcls at ${all}, each by itself`, 'a broker goes by what it has heard, not by what the controller decided'),
    ...transactionalIds.map(id =>
      step(
        `InitProducerId ${id}, twice`,
        'makes its producer a zombie and aborts its open transaction; the second epoch follows the first only if nobody took it in between',
      ),
    ),
    ...fence.producers.map(({ principal, login }) =>
      login === null
        ? step(`no write as ${principal}: no login is configured`, 'what was not tried stays unproved')
        : step(
            `Produce to ${topics.join(', ')} as ${principal} at ${all}, for a partition no topic has`,
            'must be refused for its right; if it were not, it would still write nothing',
          ),
    ),
    step(
      `ListOffsets of ${topics.join(', ')}, twice: last stable, high watermark, log end`,
      'equal ends show that nobody else writes either; a last stable below the end is an open transaction',
    ),
    ...config.regions
      .filter(r => r.name !== region.name)
      .map(r => ({
        place: `${r.name} Kafka`,
        text: 'DescribeAcls',
        why: 'a mirror with sync.topic.acls.enabled (on by default) copies the DENY there and never removes it: set it to false',
      })),
  ]
}

const TOPIC_WHY =
  'refuses the next write of sessions that are open; deleting or changing the login would not: they go on until they must authenticate again, without connections.max.reauth.ms for ever'

const TRANSACTIONAL_WHY = 'a transaction that is open could otherwise still commit what it wrote before the DENY on the topic'

/** The calls of `lift`: exactly the bindings on record as ours. */
export function liftSteps(brokers: Brokers, added: readonly DenyBinding[]): readonly FenceStep[] {
  if (added.length === 0) return []
  const place = brokers.name
  return [
    ...added.map(binding => ({
      place,
      text: `DeleteAcls ${bindingText(binding)} (literal, host *)`,
      why: 'made by the fence; what stood before it is left alone',
    })),
    {
      place,
      text: `DescribeAcls at broker ${brokers.alive.join(', ')}, each by itself`,
      why: 'a lifted fence is one that is read as gone',
    },
  ]
}
