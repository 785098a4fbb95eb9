import type Broker from 'kafkajs/src/broker/index.js'
import type ConnectionPool from 'kafkajs/src/network/connectionPool.js'
import {
  disconnect,
  type KafkaConnection,
  kafkaFailure,
  quietLog,
  REAUTHENTICATE_MS,
  saslOptions,
  trackSockets,
  withinDeadline,
} from './kafka-client.ts'

export type TopicLayout = {
  readonly topic: string
  /** The protocol's name of what is wrong with it, null when nothing is. */
  readonly error: string | null
  /** `leader` is -1 while there is none. */
  readonly partitions: readonly { readonly partition: number; readonly leader: number; readonly replicas: readonly number[] }[]
}

/** The brokers of one cluster, each of which can be asked by itself: a client of kafkajs asks one of its own choice. */
export interface Brokers {
  /** `region-a Kafka`. */
  readonly name: string
  readonly clusterId: string
  /** Ids of those the cluster's controller counts as alive, in order. */
  readonly alive: readonly number[]
  /** Those that should hold a copy of one of the topics and are not alive. */
  readonly missing: readonly number[]
  readonly topics: readonly TopicLayout[]
  /** @throws `kafka-unreachable`, with the protocol's error as its cause, when it refuses, fails or takes longer than the call timeout */
  on<T>(broker: number, what: string, work: (broker: Broker) => Promise<T>): Promise<T>
  close(): Promise<void>
}

type Address = { readonly host: string; readonly port: number }
type Node = { readonly broker: Broker; readonly pool: ConnectionPool }

/** Connects to the first broker of the configuration that answers, and learns the others from it. @throws `kafka-unreachable` */
export async function openBrokers(connection: KafkaConnection, topics: readonly [string, ...string[]]): Promise<Brokers> {
  const library = await import('./kafkajs-internals.ts')
  const sasl = await saslOptions(connection)
  const sockets = trackSockets()
  const logger = library.loggers.createLogger({ level: 1, logCreator: quietLog })
  const opened = new Set<Broker>()

  const connect = async ({ host, port }: Address): Promise<Node> => {
    const pool = new library.ConnectionPool({
      host,
      port,
      ssl: connection.login.ssl,
      sasl,
      clientId: connection.clientId,
      socketFactory: sockets.factory,
      connectionTimeout: connection.callTimeoutMs,
      requestTimeout: connection.callTimeoutMs,
      enforceRequestTimeout: true,
      reauthenticationThreshold: REAUTHENTICATE_MS,
      maxInFlightRequests: null,
      logger,
    })
    const authenticationTimeout = connection.callTimeoutMs
    const broker = new library.Broker({ connectionPool: pool, logger, authenticationTimeout, allowAutoTopicCreation: false })
    opened.add(broker)
    await broker.connect()
    return { broker, pool }
  }

  const layout = async ({ pool }: Node) => {
    const { request, response } = library.metadata.protocol({ version: 6 })({ topics, allowAutoTopicCreation: false })
    // The library's own reader of the answer throws all of it away when one partition has no leader, which is when it matters most.
    return await pool.send({ request, response: { decode: raw => response.decode(raw), parse: decoded => Promise.resolve(decoded) } })
  }

  const close = async (): Promise<void> => {
    await Promise.all([...opened].map(disconnect))
    sockets.cut()
  }

  try {
    const bootstrap = connection.login.brokers.map(async address => await layout(await connect(parseAddress(address))))
    const seen = await withinDeadline(connection, 'connect', Promise.any(bootstrap).catch(firstOf))
    const addresses = new Map(seen.brokers.map(b => [b.nodeId, b]))
    const nodes = new Map<number, Promise<Node>>()
    const layouts = seen.topicMetadata.map(t => ({
      topic: t.topic,
      error: t.topicErrorCode === 0 ? null : library.errors.createErrorFromCode(t.topicErrorCode).type,
      partitions: t.partitionMetadata
        .map(p => ({ partition: p.partitionId, leader: p.leader, replicas: p.replicas }))
        .sort((a, b) => a.partition - b.partition),
    }))
    const replicas = new Set(layouts.flatMap(t => t.partitions.flatMap(p => p.replicas)))
    return {
      name: connection.name,
      clusterId: seen.clusterId ?? '',
      alive: [...addresses.keys()].sort((a, b) => a - b),
      missing: [...replicas].filter(id => !addresses.has(id)).sort((a, b) => a - b),
      topics: layouts,
      on: async (id, what, work) => {
        const address = addresses.get(id)
        const where = `${what}, broker ${id}`
        if (address === undefined) throw kafkaFailure(connection, where, new Error('the cluster does not count it as alive'))
        const node = nodes.get(id) ?? connect(address)
        nodes.set(id, node)
        try {
          return await withinDeadline(
            connection,
            where,
            node.then(async ({ broker }) => await work(broker)),
          )
        } catch (error) {
          // Not kept when it could not even be reached: the next call tries again.
          node.catch(() => nodes.delete(id))
          throw error
        }
      },
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

/** Of several brokers that all failed, the first one's reason. */
function firstOf(error: unknown): never {
  throw error instanceof AggregateError ? (error.errors[0] as unknown) : error
}

function parseAddress(address: string): Address {
  const at = address.lastIndexOf(':')
  return { host: address.slice(0, at).replace(/^\[|\]$/g, ''), port: Number(address.slice(at + 1)) }
}
