import kafkajs from 'kafkajs'

const choose = kafkajs.Partitioners.DefaultPartitioner()

/**
 * Partition that the polling relay sends a key to: kafkajs's own choice by the message key, the same as Java's default (murmur2). A relay in
 * another language has to be set to it (librdkafka: `partitioner=murmur2_random`).
 */
export function relayPartition(topic: string, key: string, partitions: number): number {
  const partitionMetadata = Array.from({ length: partitions }, (_, partitionId) => ({
    partitionId,
    leader: 0,
    partitionErrorCode: 0,
    replicas: [],
    isr: [],
  }))
  return choose({ topic, partitionMetadata, message: { key, value: null } })
}
