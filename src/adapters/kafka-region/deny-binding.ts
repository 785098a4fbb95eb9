import type { FenceConfig } from '../../domain/config.ts'
import { OPERATION, PATTERN_TYPE, PERMISSION, RESOURCE_TYPE } from './acl-protocol.ts'

export type KafkaFenceConfig = Extract<FenceConfig, { kind: 'kafka' }>

/** Something that access is decided by. */
export type AclResource = { readonly resource: 'topic' | 'transactional-id'; readonly name: string }

/** A DENY of WRITE, literal, from every host: the only kind of binding the fence ever makes. */
export type DenyBinding = AclResource & { readonly principal: string }

/** What the fence wants to stand: per producer each topic and each of its transactional ids. */
export function wantedBindings(fence: KafkaFenceConfig): readonly DenyBinding[] {
  const all = fence.producers.flatMap(({ principal, transactionalIds }) => [
    ...fence.topics.map(name => ({ resource: 'topic', name, principal }) as const),
    ...transactionalIds.map(name => ({ resource: 'transactional-id', name, principal }) as const),
  ])
  return union(all, [])
}

/**
 * Whether the fence, as it is configured, could have made it. A record is a file before it is anything else: what it names beyond that is not
 * deleted on its word.
 */
export function couldBeOf(fence: KafkaFenceConfig, { resource, name, principal }: DenyBinding): boolean {
  const names = resource === 'topic' ? fence.topics : fence.producers.flatMap(p => p.transactionalIds)
  return names.includes(name) && fence.producers.some(p => p.principal === principal)
}

export function resourcesOf(bindings: readonly DenyBinding[]): readonly AclResource[] {
  const all = new Map(bindings.map(({ resource, name }) => [resourceText({ resource, name }), { resource, name }]))
  return [...all.values()]
}

export function resourceText({ resource, name }: AclResource): string {
  return `${resource === 'topic' ? 'topic' : 'transactional id'} ${name}`
}

export function bindingText(binding: DenyBinding): string {
  return `DENY WRITE on ${resourceText(binding)} for ${binding.principal}`
}

export function includes(bindings: readonly DenyBinding[], wanted: DenyBinding): boolean {
  return bindings.some(b => b.resource === wanted.resource && b.name === wanted.name && b.principal === wanted.principal)
}

export function without(bindings: readonly DenyBinding[], others: readonly DenyBinding[]): readonly DenyBinding[] {
  return bindings.filter(b => !includes(others, b))
}

export function union(a: readonly DenyBinding[], b: readonly DenyBinding[]): readonly DenyBinding[] {
  return [...a, ...b].reduce<readonly DenyBinding[]>((all, binding) => (includes(all, binding) ? all : [...all, binding]), [])
}

/** The binding as the protocol has it, to create and, as a filter, to delete exactly this one. */
export function protocolBinding({ resource, name, principal }: DenyBinding) {
  return {
    resourceType: RESOURCE_TYPE[resource],
    resourceName: name,
    resourcePatternType: PATTERN_TYPE.literal,
    principal,
    host: '*',
    operation: OPERATION.write,
    permissionType: PERMISSION.deny,
  }
}
