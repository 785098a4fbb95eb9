export type KafkaPorts = { readonly client: number; readonly internal: number; readonly controller: number }

/**
 * A single KRaft node with what production has and matters here: clients authenticate by SCRAM and an authorizer decides what
 * they may do. The internal and controller listeners are open, on loopback, to whoever may use this machine.
 */
export function serverProperties(at: { ports: KafkaPorts; bind: string; dataDir: string }): string {
  const { client, internal, controller } = at.ports
  const settings: readonly (readonly [string, string | number | boolean])[] = [
    ['process.roles', 'broker,controller'],
    ['node.id', 1],
    ['controller.quorum.voters', `1@127.0.0.1:${controller}`],
    ['listeners', `CLIENT://${at.bind}:${client},INTERNAL://${at.bind}:${internal},CONTROLLER://127.0.0.1:${controller}`],
    ['advertised.listeners', `CLIENT://127.0.0.1:${client},INTERNAL://127.0.0.1:${internal}`],
    ['listener.security.protocol.map', 'CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT'],
    ['controller.listener.names', 'CONTROLLER'],
    ['inter.broker.listener.name', 'INTERNAL'],
    ['sasl.enabled.mechanisms', 'SCRAM-SHA-256'],
    ['listener.name.client.scram-sha-256.sasl.jaas.config', 'org.apache.kafka.common.security.scram.ScramLoginModule required;'],
    // A deleted user's live connections go on until they must authenticate again.
    ['connections.max.reauth.ms', 15_000],
    ['authorizer.class.name', 'org.apache.kafka.metadata.authorizer.StandardAuthorizer'],
    ['super.users', 'User:ANONYMOUS;User:admin'],
    // A killed broker may register again only when its old session is over: 9 s by default.
    ['broker.session.timeout.ms', 3000],
    ['broker.heartbeat.interval.ms', 500],
    ['auto.create.topics.enable', false],
    ['log.dirs', at.dataDir],
    ['num.partitions', 3],
    ['offsets.topic.replication.factor', 1],
    ['offsets.topic.num.partitions', 1],
    ['transaction.state.log.replication.factor', 1],
    ['transaction.state.log.min.isr', 1],
    ['transaction.state.log.num.partitions', 1],
    ['share.coordinator.state.topic.replication.factor', 1],
    ['share.coordinator.state.topic.min.isr', 1],
    ['share.coordinator.state.topic.num.partitions', 1],
    ['group.initial.rebalance.delay.ms', 0],
    ['num.network.threads', 1],
    ['num.io.threads', 2],
    ['background.threads', 2],
    // Heap, and 128 MB by default.
    ['log.cleaner.dedupe.buffer.size', 4_194_304],
    ['transaction.max.timeout.ms', 60_000],
  ]
  return settings.map(([key, value]) => `${key}=${value}\n`).join('')
}
