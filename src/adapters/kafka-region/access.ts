import kafkajs from 'kafkajs'
import { disconnect, type KafkaConnection, openKafka, withinDeadline } from './kafka-client.ts'

const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, ResourcePatternTypes } = kafkajs

/** What one login may do with one resource; the cluster's name is `kafka-cluster`. `describe` comes with `read` and `write`. */
export type KafkaGrant = {
  readonly username: string
  readonly resource: 'topic' | 'group' | 'transactional-id' | 'cluster'
  readonly name: string
  readonly may: readonly ('read' | 'write' | 'create' | 'describe' | 'alter')[]
}

const OPERATIONS = {
  read: AclOperationTypes.READ,
  write: AclOperationTypes.WRITE,
  create: AclOperationTypes.CREATE,
  describe: AclOperationTypes.DESCRIBE,
  alter: AclOperationTypes.ALTER,
} as const

const RESOURCES = {
  topic: AclResourceTypes.TOPIC,
  group: AclResourceTypes.GROUP,
  'transactional-id': AclResourceTypes.TRANSACTIONAL_ID,
  cluster: AclResourceTypes.CLUSTER,
} as const

/** Lets logins use topics and groups. Repeatable. The connection's login needs ALTER on the cluster. @throws `kafka-unreachable` */
export async function grantAccess(connection: KafkaConnection, grants: readonly KafkaGrant[]): Promise<void> {
  const acl = grants.flatMap(grant =>
    grant.may.map(operation => ({
      resourceType: RESOURCES[grant.resource],
      resourceName: grant.name,
      resourcePatternType: ResourcePatternTypes.LITERAL,
      principal: `User:${grant.username}`,
      host: '*',
      operation: OPERATIONS[operation],
      permissionType: AclPermissionTypes.ALLOW,
    })),
  )
  const admin = (await openKafka(connection)).admin()
  try {
    await withinDeadline(connection, 'connect', admin.connect())
    await withinDeadline(connection, 'createAcls', admin.createAcls({ acl }))
  } finally {
    await disconnect(admin)
  }
}
