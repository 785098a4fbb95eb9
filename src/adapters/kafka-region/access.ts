import kafkajs from 'kafkajs'
import { disconnect, type KafkaConnection, openKafka, withinDeadline } from './kafka-client.ts'

const { AclOperationTypes, AclPermissionTypes, AclResourceTypes, ResourcePatternTypes } = kafkajs

/** What one login may do with one topic or consumer group. `describe` comes with both. */
export type KafkaGrant = {
  readonly username: string
  readonly resource: 'topic' | 'group'
  readonly name: string
  readonly may: readonly ('read' | 'write' | 'create' | 'describe')[]
}

const OPERATIONS = {
  read: AclOperationTypes.READ,
  write: AclOperationTypes.WRITE,
  create: AclOperationTypes.CREATE,
  describe: AclOperationTypes.DESCRIBE,
} as const

/** Lets logins use topics and groups. Repeatable. The connection's login needs ALTER on the cluster. @throws `kafka-unreachable` */
export async function grantAccess(connection: KafkaConnection, grants: readonly KafkaGrant[]): Promise<void> {
  const acl = grants.flatMap(grant =>
    grant.may.map(operation => ({
      resourceType: grant.resource === 'topic' ? AclResourceTypes.TOPIC : AclResourceTypes.GROUP,
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
