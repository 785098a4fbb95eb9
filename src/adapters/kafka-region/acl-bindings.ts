import { setTimeout as wait } from 'node:timers/promises'
import { HomeregionError } from '../../domain/errors.ts'
import { OPERATION, PATTERN_TYPE, PERMISSION, RESOURCE_TYPE } from './acl-protocol.ts'
import type { Brokers } from './broker-requests.ts'
import { type AclResource, type DenyBinding, includes, protocolBinding, resourceText } from './deny-binding.ts'
import { protocolError } from './kafka-client.ts'

/** Bindings of one resource as one broker applies them: our kind, how many others there are, and whom those allow to write. */
export type ResourceBindings = AclResource & {
  readonly denies: readonly DenyBinding[]
  readonly others: number
  readonly allowed: readonly string[]
}

/** What one broker applies now; `why` it could not be read. */
export type BrokerView =
  | { readonly broker: number; readonly resources: readonly ResourceBindings[]; readonly why: null }
  | { readonly broker: number; readonly resources: null; readonly why: string }

// A broker learns of a binding within milliseconds of the controller's commit.
const POLL_MS = 20

/** Each broker by itself: between the controller's commit and a broker's hearing of it, that broker still goes by what it knows. */
export async function readEach(brokers: Brokers, resources: readonly AclResource[]): Promise<readonly BrokerView[]> {
  return await Promise.all(
    brokers.alive.map(async (broker): Promise<BrokerView> => {
      try {
        return { broker, resources: await readOne(brokers, broker, resources), why: null }
      } catch (error) {
        if (protocolError(error) === 'CLUSTER_AUTHORIZATION_FAILED') throw missingRight(brokers, 'DESCRIBE on the cluster', error)
        return { broker, resources: null, why: error instanceof Error ? error.message : String(error) }
      }
    }),
  )
}

/** All bindings that decide about a resource: literal, by prefix, and for every name. */
async function readOne(brokers: Brokers, id: number, resources: readonly AclResource[]): Promise<readonly ResourceBindings[]> {
  return await Promise.all(
    resources.map(async ({ resource, name }) => {
      const found = await brokers.on(id, `bindings of ${resourceText({ resource, name })}`, async broker => {
        return await broker.describeAcls({
          resourceType: RESOURCE_TYPE[resource],
          resourceName: name,
          resourcePatternType: PATTERN_TYPE.match,
          principal: null,
          host: null,
          operation: OPERATION.any,
          permissionType: PERMISSION.any,
        })
      })
      const entries = found.resources.flatMap(r => r.acls.map(acl => ({ ...r, ...acl })))
      const denies = entries.filter(
        e =>
          e.resourceName === name &&
          e.resourcePatternType === PATTERN_TYPE.literal &&
          e.host === '*' &&
          e.operation === OPERATION.write &&
          e.permissionType === PERMISSION.deny,
      )
      return {
        resource,
        name,
        denies: denies.map(e => ({ resource, name, principal: e.principal })),
        others: entries.length - denies.length,
        allowed: entries
          .filter(e => e.permissionType === PERMISSION.allow && (e.operation === OPERATION.write || e.operation === OPERATION.all))
          .map(e => e.principal),
      }
    }),
  )
}

/** Those of `wanted` that stand on every broker that was read. */
export function standing(views: readonly BrokerView[], wanted: readonly DenyBinding[]): readonly DenyBinding[] {
  const read = views.flatMap(v => (v.resources === null ? [] : [v.resources.flatMap(r => r.denies)]))
  return read.length === 0 ? [] : wanted.filter(w => read.every(denies => includes(denies, w)))
}

/** Those of `wanted` that stand on at least one broker. */
export function standingAnywhere(views: readonly BrokerView[], wanted: readonly DenyBinding[]): readonly DenyBinding[] {
  const all = views.flatMap(v => v.resources?.flatMap(r => r.denies) ?? [])
  return wanted.filter(w => includes(all, w))
}

/** Who may still write a topic, as far as the access rules say: allowed there, and none of those that the fence denies it. Superusers show in none. */
export function stillAllowed(views: readonly BrokerView[], wanted: readonly DenyBinding[]): readonly string[] {
  const topics = views.flatMap(v => v.resources ?? []).filter(r => r.resource === 'topic')
  const found = topics.flatMap(({ resource, name, allowed }) =>
    allowed.filter(principal => !includes(wanted, { resource, name, principal })).map(principal => `${principal} on ${name}`),
  )
  return [...new Set(found)].sort()
}

export function unread(views: readonly BrokerView[]): readonly number[] {
  return views.filter(v => v.resources === null).map(v => v.broker)
}

/** Reads until every broker is read and `done` says so, or the time is over; the last views either way. */
export async function readUntil(
  brokers: Brokers,
  resources: readonly AclResource[],
  withinMs: number,
  done: (views: readonly BrokerView[]) => boolean,
): Promise<readonly BrokerView[]> {
  const end = performance.now() + withinMs
  for (;;) {
    const views = await readEach(brokers, resources)
    if ((unread(views).length === 0 && done(views)) || performance.now() > end) return views
    await wait(POLL_MS)
  }
}

export async function createBindings(brokers: Brokers, bindings: readonly DenyBinding[]): Promise<void> {
  await change(brokers, 'CreateAcls', async id => {
    await brokers.on(id, 'CreateAcls', async broker => await broker.createAcls({ acl: bindings.map(protocolBinding) }))
  })
}

export async function deleteBinding(brokers: Brokers, binding: DenyBinding): Promise<void> {
  await change(brokers, 'DeleteAcls', async id => {
    await brokers.on(id, 'DeleteAcls', async broker => await broker.deleteAcls({ filters: [protocolBinding(binding)] }))
  })
}

/** Asks to delete what nobody ever made: the brokers decide first whether this login may. @throws `privilege-missing` */
export async function mayChange(brokers: Brokers): Promise<void> {
  await deleteBinding(brokers, { resource: 'topic', name: 'homeregion.asks-whether-it-may', principal: 'User:homeregion-nobody' })
}

/** Any broker passes it on to the controller; both changes are idempotent, so that another broker may be asked when one fails. */
async function change(brokers: Brokers, what: string, send: (broker: number) => Promise<void>): Promise<void> {
  let failure: unknown = new Error(`no broker was left to ask (${what})`)
  for (const id of brokers.alive) {
    try {
      await send(id)
      return
    } catch (error) {
      if (protocolError(error) === 'CLUSTER_AUTHORIZATION_FAILED') throw missingRight(brokers, 'ALTER on the cluster', error)
      failure = error
    }
  }
  throw failure
}

export function missingRight(brokers: Brokers, right: string, cause: unknown): HomeregionError {
  return new HomeregionError(
    'privilege-missing',
    {
      fact: `${brokers.name}: the fence's login lacks ${right}`,
      next: 'grant it with kafka-acls --add --allow-principal, then the same command again',
    },
    { cause },
  )
}
