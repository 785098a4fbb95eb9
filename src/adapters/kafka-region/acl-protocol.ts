/**
 * Numbers of Kafka's protocol for access rules. kafkajs has them too, but loading it for the sake of names would cost every command its
 * start.
 */
export const RESOURCE_TYPE = { any: 1, topic: 2, 'transactional-id': 5 } as const
/** `match`: literal, by prefix, and for every name: all that decide about one resource. */
export const PATTERN_TYPE = { match: 2, literal: 3 } as const
export const OPERATION = { any: 1, all: 2, write: 4 } as const
export const PERMISSION = { any: 1, deny: 2, allow: 3 } as const
