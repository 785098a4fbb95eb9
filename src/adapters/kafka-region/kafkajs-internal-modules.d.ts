/**
 * The parts of kafkajs 2.2.4 that its public interface keeps to itself: one broker at a time, and requests its clients never send. Only
 * what `broker-requests.ts` uses, as read in the library's own source. The version is pinned.
 */
declare module 'kafkajs/src/network/connectionPool.js' {
  import type { ISocketFactory, SASLOptions } from 'kafkajs'
  import type { InternalLogger } from 'kafkajs/src/loggers/index.js'

  type Request = { readonly apiName: string }
  type Response<T> = { decode(raw: Buffer): Promise<T>; parse(decoded: T): Promise<T> }

  export default class ConnectionPool {
    constructor(options: {
      host: string
      port: number
      ssl: boolean
      sasl: SASLOptions | null
      clientId: string
      socketFactory: ISocketFactory
      connectionTimeout: number
      requestTimeout: number
      enforceRequestTimeout: boolean
      reauthenticationThreshold: number
      maxInFlightRequests: number | null
      logger: InternalLogger
    })
    send<T>(call: { request: Request; response: Response<T> }): Promise<T>
  }
}

declare module 'kafkajs/src/broker/index.js' {
  import type { InternalLogger } from 'kafkajs/src/loggers/index.js'
  import type ConnectionPool from 'kafkajs/src/network/connectionPool.js'

  type AclEntry = { principal: string; host: string; operation: number; permissionType: number }
  type AclPattern = { resourceType: number; resourceName: string; resourcePatternType: number }
  type AclFilter = {
    resourceType: number
    resourceName: string | null
    resourcePatternType: number
    principal: string | null
    host: string | null
    operation: number
    permissionType: number
  }

  export default class Broker {
    constructor(options: {
      connectionPool: ConnectionPool
      logger: InternalLogger
      nodeId?: number | null
      authenticationTimeout: number
      allowAutoTopicCreation: boolean
    })
    connect(): Promise<void>
    disconnect(): Promise<void>
    describeAcls(filter: AclFilter): Promise<{ resources: (AclPattern & { acls: AclEntry[] })[] }>
    createAcls(request: { acl: (AclPattern & AclEntry)[] }): Promise<unknown>
    deleteAcls(request: { filters: AclFilter[] }): Promise<unknown>
    findGroupCoordinator(request: { groupId: string; coordinatorType: number }): Promise<{ coordinator: { nodeId: number } }>
    initProducerId(request: { transactionalId: string; transactionTimeout: number }): Promise<{ producerId: string; producerEpoch: number }>
    endTxn(request: { transactionalId: string; producerId: string; producerEpoch: number; transactionResult: boolean }): Promise<unknown>
    produce(request: {
      acks: number
      timeout: number
      transactionalId: string | null
      topicData: { topic: string; partitions: { partition: number; messages: { key: string | null; value: string }[] }[] }[]
    }): Promise<unknown>
    fetch(request: {
      replicaId: number
      isolationLevel: number
      maxWaitTime: number
      maxBytes: number
      topics: { topic: string; partitions: { partition: number; fetchOffset: string; maxBytes: number }[] }[]
    }): Promise<{
      responses: { partitions: { messages: { offset: string; key: Buffer | null; isControlRecord?: boolean }[] }[] }[]
    }>
    listOffsets(request: {
      replicaId: number
      isolationLevel: number
      topics: { topic: string; partitions: { partition: number; timestamp: number }[] }[]
    }): Promise<{ responses: { topic: string; partitions: { partition: number; offset: string }[] }[] }>
  }
}

declare module 'kafkajs/src/loggers/index.js' {
  import type { logCreator } from 'kafkajs'

  export type InternalLogger = { readonly namespace: (name: string) => InternalLogger }
  const loggers: { createLogger(options: { level: number; logCreator: logCreator }): InternalLogger }
  export default loggers
}

declare module 'kafkajs/src/protocol/requests/metadata/index.js' {
  import type ConnectionPool from 'kafkajs/src/network/connectionPool.js'

  type Metadata = {
    brokers: { nodeId: number; host: string; port: number }[]
    clusterId: string | null
    topicMetadata: {
      topicErrorCode: number
      topic: string
      partitionMetadata: { partitionErrorCode: number; partitionId: number; leader: number; replicas: number[] }[]
    }[]
  }
  type Call = Parameters<ConnectionPool['send']>[0]

  const metadata: {
    protocol(version: { version: 6 }): (request: { topics: readonly string[]; allowAutoTopicCreation: boolean }) => {
      request: Call['request']
      response: { decode(raw: Buffer): Promise<Metadata>; parse(decoded: Metadata): Promise<Metadata> }
    }
  }
  export default metadata
}

declare module 'kafkajs/src/protocol/error.js' {
  const errors: { createErrorFromCode(code: number): Error & { readonly type: string } }
  export default errors
}
