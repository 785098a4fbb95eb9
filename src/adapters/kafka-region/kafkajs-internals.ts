import Broker from 'kafkajs/src/broker/index.js'
import loggers from 'kafkajs/src/loggers/index.js'
import ConnectionPool from 'kafkajs/src/network/connectionPool.js'
import errors from 'kafkajs/src/protocol/error.js'
import metadata from 'kafkajs/src/protocol/requests/metadata/index.js'

// In a module of its own for the same reason as kafka-library.ts: loaded when a broker is first asked, not at every start.
export { Broker, ConnectionPool, errors, loggers, metadata }
