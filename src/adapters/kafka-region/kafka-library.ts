import kafkajs from 'kafkajs'

// In a module of its own, which is loaded at the first connection: most commands never talk to a broker, and every start would pay for it.
export const { Kafka } = kafkajs
