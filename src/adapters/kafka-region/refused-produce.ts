import { isHomeregionError } from '../../domain/errors.ts'
import { fail, type Observation, pass, unknown } from '../../domain/evidence.ts'
import { type Brokers, openBrokers } from './broker-requests.ts'
import type { KafkaFenceConfig } from './deny-binding.ts'
import { type KafkaConnection, protocolError } from './kafka-client.ts'
import { mayEndTransaction } from './transaction-takeover.ts'

// No topic has so many. Brokers decide whether the login may write the topic before they look for the partition, so that a probe which
// is not refused still writes nothing: a record that landed in the outbox topic could not be taken back.
const NO_SUCH_PARTITION = 2_147_483_647

const REFUSED = { topic: 'TOPIC_AUTHORIZATION_FAILED', transaction: 'TRANSACTIONAL_ID_AUTHORIZATION_FAILED' } as const

/** `null`: refused as the fence wants it; else what came instead. */
type Answer = { readonly call: string; readonly broker: number; readonly instead: string | null; readonly admitted: boolean }

/** Writes with the producer's own login, asked of each broker: what an idle session of its may do, and a new one. */
export async function probeProducer(
  connection: KafkaConnection,
  topics: readonly [string, ...string[]],
  producer: KafkaFenceConfig['producers'][number],
): Promise<Observation> {
  const { principal, login, transactionalIds } = producer
  const required = `every write of ${principal} refused by every broker`
  if (login === null) return unknown(connection.name, required, `${principal} was not tried: the configuration has no login for it`)
  const facts = { principal, topics: [...topics], transactionalIds: [...transactionalIds] }
  let brokers: Brokers
  try {
    brokers = await openBrokers({ ...connection, login: { ...connection.login, sasl: login } }, topics)
  } catch (error) {
    return unknown(connection.name, required, `${principal} was not tried: ${messageOf(error)}`, facts)
  }
  try {
    const answers = await Promise.all(brokers.alive.map(async id => await probeBroker(brokers, id, topics, transactionalIds)))
    return judge(brokers, principal, required, answers.flat(), facts)
  } catch (error) {
    return unknown(connection.name, required, `${principal} was not tried to the end: ${messageOf(error)}`, facts)
  } finally {
    await brokers.close()
  }
}

async function probeBroker(
  brokers: Brokers,
  broker: number,
  topics: readonly string[],
  transactionalIds: readonly string[],
): Promise<readonly Answer[]> {
  const plain = topics.map(async topic => {
    const said = await produceNowhere(brokers, broker, topic, null)
    return { call: `write to ${topic}`, broker, instead: said === REFUSED.topic ? null : said, admitted: isAdmission(said) }
  })
  const inTransaction = transactionalIds.flatMap(id => [
    ...topics.map(async topic => {
      const said = await produceNowhere(brokers, broker, topic, id)
      return {
        call: `write to ${topic} as ${id}`,
        broker,
        instead: said === REFUSED.transaction ? null : said,
        admitted: isAdmission(said),
      }
    }),
    (async () => {
      const said = await mayEndTransaction(brokers, broker, id)
      return { call: `end of a transaction of ${id}`, broker, instead: said, admitted: said !== null }
    })(),
  ])
  return await Promise.all([...plain, ...inTransaction])
}

/** The right was there, or the write went through: these can only come after the question whether the login may write. */
function isAdmission(said: string): boolean {
  return said === 'UNKNOWN_TOPIC_OR_PARTITION' || said === 'NOT_LEADER_FOR_PARTITION' || said === 'NONE'
}

async function produceNowhere(brokers: Brokers, broker: number, topic: string, transactionalId: string | null): Promise<string> {
  const partitions = [{ partition: NO_SUCH_PARTITION, messages: [{ key: null, value: 'homeregion probe' }] }]
  try {
    await brokers.on(broker, 'Produce', async b => {
      return await b.produce({ acks: -1, timeout: 1000, transactionalId, topicData: [{ topic, partitions }] })
    })
    return 'NONE'
  } catch (error) {
    const type = protocolError(error)
    if (type === null) throw error
    return type
  }
}

function judge(
  brokers: Brokers,
  principal: string,
  required: string,
  answers: readonly Answer[],
  facts: NonNullable<Observation['facts']>,
): Observation {
  const wrong = answers.filter(a => a.instead !== null)
  const [first] = wrong
  const all = { ...facts, brokers: [...brokers.alive], wrong: wrong.map(a => `${a.call}, broker ${a.broker}: ${a.instead ?? ''}`) }
  if (first === undefined) {
    return pass(brokers.name, required, `${principal}: ${answers.length} writes refused by broker ${brokers.alive.join(', ')}`, all)
  }
  const admitted = wrong.find(a => a.admitted)
  const shown = admitted ?? first
  const text = `${principal}: ${shown.call} answered ${shown.instead ?? ''} by broker ${shown.broker}`
  const more = wrong.length === 1 ? '' : ` (${wrong.length} of ${answers.length} writes not refused as they should be)`
  if (admitted === undefined) return unknown(brokers.name, required, `${text}${more}`, all)
  return fail(brokers.name, required, `${principal} may still: ${admitted.call}, broker ${admitted.broker}${more}`, all)
}

export function messageOf(error: unknown): string {
  if (isHomeregionError(error)) return error.text.fact
  return error instanceof Error ? error.message : String(error)
}
