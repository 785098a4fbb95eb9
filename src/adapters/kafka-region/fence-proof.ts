import { setTimeout as wait } from 'node:timers/promises'
import { fail, type Observation, pass, unknown } from '../../domain/evidence.ts'
import { type BrokerView, readEach, standing, stillAllowed, unread } from './acl-bindings.ts'
import type { Brokers } from './broker-requests.ts'
import { bindingText, without } from './deny-binding.ts'
import type { FenceRecord } from './fence-record.ts'
import type { FenceSetting } from './fence-setting.ts'
import { movedPartitions, openPartitions, type PartitionEnds, place, readEnds } from './log-ends.ts'
import { judgeTravel, readOtherClusters } from './other-clusters.ts'
import { messageOf, probeProducer } from './refused-produce.ts'

// Longer than a producer lingers by default and than a broker takes to answer on one machine; a live producer writes within it.
const BETWEEN_READS_MS = 60

/** Every part of the proof; each read anew, nothing changed. None is enough alone. */
export async function prove(setting: FenceSetting, brokers: Brokers, record: FenceRecord): Promise<readonly Observation[]> {
  const { region, config, secrets, connection, topics, fence, wanted, resources } = setting
  const bindings = readEach(brokers, resources).then(
    views => judgeBindings(setting, brokers, views),
    (error: unknown) => unknown(brokers.name, BINDINGS_REQUIRED, messageOf(error)),
  )
  const [seen, ends, others, ...probes] = await Promise.all([
    bindings,
    judgeEnds(brokers),
    readOtherClusters(region, config, secrets, wanted),
    ...fence.producers.map(async producer => await probeProducer(connection, topics, producer)),
  ])
  const travel = judgeTravel(others, brokers.clusterId, record.elsewhere, config.transport.mirror !== 'none')
  return [seen, ...probes, ends, ...travel]
}

const BINDINGS_REQUIRED = 'each DENY stands on every broker'

function judgeBindings({ wanted }: FenceSetting, brokers: Brokers, views: readonly BrokerView[]): Observation {
  const observer = brokers.name
  const absent = without(wanted, standing(views, wanted))
  const silent = [...unread(views), ...brokers.missing]
  const read = brokers.alive.filter(id => !silent.includes(id))
  // They are outside this fence: named, so that nobody takes the proof for more than it is.
  const others = stillAllowed(views, wanted)
  const facts = { brokers: read, notRead: silent, bindings: wanted.map(bindingText), absent: absent.map(bindingText), stillAllowed: others }
  const [first] = absent
  if (read.length > 0 && first !== undefined) {
    const more = absent.length === 1 ? '' : `, and ${absent.length - 1} more`
    return fail(observer, BINDINGS_REQUIRED, `missing: ${bindingText(first)}${more}`, facts)
  }
  if (silent.length > 0) {
    const here = read.length === 0 ? '' : `, stands on broker ${read.join(', ')}`
    return unknown(observer, BINDINGS_REQUIRED, `broker ${silent.join(', ')} was not read${here}`, facts)
  }
  const beside = others.length === 0 ? '' : `; not held by this fence and allowed to write: ${others.join(', ')}`
  return pass(observer, BINDINGS_REQUIRED, `${wanted.length} DENY on broker ${read.join(', ')}${beside}`, facts)
}

const ENDS_REQUIRED = 'ends equal on two reads, no transaction open'

async function judgeEnds(brokers: Brokers): Promise<Observation> {
  const observer = brokers.name
  const [wrong] = brokers.topics.filter(t => t.error !== null)
  if (wrong !== undefined) return unknown(observer, ENDS_REQUIRED, `${wrong.topic}: ${wrong.error ?? ''}`)
  try {
    const first = await readEnds(brokers)
    await wait(BETWEEN_READS_MS)
    const second = await readEnds(brokers)
    const facts = { ends: second.map(e => ({ ...e })) }
    const [moved] = movedPartitions(first, second)
    if (moved !== undefined) {
      const before = first.find(e => place(e) === place(moved))
      const text = `${place(moved)} went from ${before?.logEnd ?? '?'} to ${moved.logEnd} within ${BETWEEN_READS_MS} ms: somebody still writes`
      return fail(observer, ENDS_REQUIRED, text, facts)
    }
    const [open] = openPartitions(second)
    if (open !== undefined) return fail(observer, ENDS_REQUIRED, openText(open), facts)
    return pass(observer, ENDS_REQUIRED, `${second.map(e => `${place(e)} at ${e.logEnd}`).join(', ')}, twice`, facts)
  } catch (error) {
    return unknown(observer, ENDS_REQUIRED, messageOf(error))
  }
}

function openText(ends: PartitionEnds): string {
  return ends.lastStable === ends.highWatermark
    ? `${place(ends)}: the leader has ${ends.logEnd}, its replicas ${ends.highWatermark}`
    : `${place(ends)}: a transaction is open from ${ends.lastStable} on, end ${ends.highWatermark}; is its transactional id in the configuration?`
}
