import type { Config, RegionConfig } from '../../domain/config.ts'
import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import { type Observation, unknown } from '../../domain/evidence.ts'
import type { Fence, FenceCause, FenceNotes, FenceStatus } from '../../domain/fence.ts'
import { alreadyStood, newestWish, requireSameWish } from '../../domain/fence-wish.ts'
import type { FaultPoint } from '../../domain/ports.ts'
import { type BrokerView, createBindings, deleteBinding, readEach, readUntil, standing, standingAnywhere, unread } from './acl-bindings.ts'
import type { Brokers } from './broker-requests.ts'
import {
  bindingText,
  couldBeOf,
  type DenyBinding,
  includes,
  type KafkaFenceConfig,
  resourcesOf,
  resourceText,
  union,
  without,
} from './deny-binding.ts'
import { applySteps, liftSteps } from './fence-plan.ts'
import { prove } from './fence-proof.ts'
import { type FenceRecord, recordOf, toJson } from './fence-record.ts'
import { refuseFirstBinding, refuseShared, refuseStrange, refuseTooWide, refuseWithoutRights } from './fence-refusals.ts'
import { type FenceSetting, fenceSetting, withBrokers } from './fence-setting.ts'
import type { SecretReader } from './kafka-client.ts'
import { readUntilClosed } from './log-ends.ts'
import { readOtherClusters } from './other-clusters.ts'
import { messageOf } from './refused-produce.ts'
import { type Takeover, takeOver } from './transaction-takeover.ts'

/**
 * Stops a region's producers at its own brokers. No single control does: a DENY on the topic lets an open transaction commit, one on the
 * transactional id lets plain producers write, and either is only what the brokers have heard of so far. So all of them, each read back.
 */
export function createKafkaFence(
  region: RegionConfig,
  fence: KafkaFenceConfig,
  config: Config,
  secrets: SecretReader,
  notes: FenceNotes,
  fault: FaultPoint,
): Fence {
  const setting = fenceSetting(region, fence, config, secrets)
  const parts: Parts = { setting, notes, fault }
  return {
    region: region.name,
    name: fence.name,
    kind: 'kafka',
    plan: async direction =>
      await withBrokers(setting, async brokers => {
        const record = recordOf(await notes.read())
        if (direction === 'lift')
          return liftSteps(
            brokers,
            record.added.filter(b => couldBeOf(fence, b)),
          )
        return applySteps(setting, brokers, (await lookAhead(setting, brokers, record)).missing)
      }),
    apply: async cause => await withBrokers(setting, async brokers => await apply(parts, brokers, cause)),
    verify: async () => await verify(parts),
    lift: async (cause, asked) => await withBrokers(setting, async brokers => await lift(parts, brokers, cause, asked)),
    status: async () => await status(parts),
    // Every call has its own connections, and has closed them.
    close: () => Promise.resolve(),
  }
}

type Parts = { readonly setting: FenceSetting; readonly notes: FenceNotes; readonly fault: FaultPoint }

/** What stands, what is missing and what it was elsewhere; refuses what must not be begun. */
async function lookAhead(setting: FenceSetting, brokers: Brokers, record: FenceRecord) {
  const { region, config, secrets, wanted, resources, connection, transactionalIds } = setting
  refuseTooWide(setting)
  const others = await readOtherClusters(region, config, secrets, wanted)
  refuseShared(setting, brokers.clusterId, others)
  await refuseWithoutRights(brokers, transactionalIds)
  // Brokers that differ are a change of somebody else on its way: what was here before us can only be told when it has arrived.
  const views = await readUntil(brokers, resources, connection.callTimeoutMs, v => sameEverywhere(v, wanted))
  if (!sameEverywhere(views, wanted)) throw unsettled(brokers)
  const present = standing(views, wanted)
  const missing = without(wanted, present)
  refuseFirstBinding(views, missing, record)
  return { missing, present, elsewhere: Object.fromEntries(others.map(o => [o.region, o.denies])) }
}

function sameEverywhere(views: readonly BrokerView[], wanted: readonly DenyBinding[]): boolean {
  return views.some(v => v.resources !== null) && standing(views, wanted).length === standingAnywhere(views, wanted).length
}

async function apply({ setting, notes, fault }: Parts, brokers: Brokers, cause: FenceCause): Promise<readonly string[]> {
  const { wanted, resources, connection, transactionalIds, region } = setting
  const note = await notes.read()
  const known = recordOf(note)
  const { missing, present, elsewhere } = await lookAhead(setting, brokers, known)
  const record: FenceRecord = {
    added: union(known.added, without(missing, known.found)),
    found: union(known.found, without(present, known.added)),
    elsewhere: note === null ? elsewhere : known.elsewhere,
  }
  const wish = newestWish(note, cause, Date.now())
  const stands = { ...wish, since: note?.since ?? new Date().toISOString(), former: toJson(record) }
  await notes.write({ ...stands, state: 'applying' })
  try {
    await fault('fence:kafka:noted')
    if (missing.length > 0) await createBindings(brokers, missing)
    await fault('fence:kafka:denied')
    const views = await readUntil(brokers, resources, connection.callTimeoutMs, v => without(wanted, standing(v, wanted)).length === 0)
    requireAllRead(brokers, views)
    const [absent] = without(wanted, standing(views, wanted))
    if (absent !== undefined) throw failed(brokers, `${bindingText(absent)} was not read back`)
    await fault('fence:kafka:read-back')
    const taken: Takeover[] = []
    for (const id of transactionalIds) {
      const takeover = await takeOver(brokers, id, connection.callTimeoutMs, fault)
      if (takeover === null) throw failed(brokers, `somebody else keeps taking transactional id ${id}`)
      taken.push(takeover)
      await fault('fence:kafka:taken-over')
    }
    await readUntilClosed(brokers, connection.callTimeoutMs)
    const proof = await prove(setting, brokers, record)
    const [open] = proof.filter(o => o.verdict === 'fail')
    if (open !== undefined) throw failed(brokers, `${open.observer}: ${open.observed}`)
    await fault('fence:kafka:proved')
    // Whoever asked for it meanwhile keeps the wish on record.
    const newest = await notes.read()
    const last = newest !== null && newest.asked > wish.asked ? { asked: newest.asked, cause: newest.cause } : wish
    await notes.write({ ...stands, ...last, state: 'applied' })
    return [
      ...wanted.map(b => `${bindingText(b)}${includes(record.found, b) ? ' (stood before)' : ''}, broker ${brokers.alive.join(', ')}`),
      ...taken.map(t => `transactional id ${t.transactionalId}: taken over, producer ${t.producerId}, epoch ${t.epoch}`),
      // The first only repeats the bindings.
      ...proof.slice(1).map(lineOf),
      ...alreadyStood(note, cause),
    ]
  } catch (error) {
    throw await afterwards(setting, brokers, error, `homeregion fence apply ${region.name}`)
  }
}

async function verify({ setting, notes }: Parts): Promise<readonly Observation[]> {
  try {
    const record = recordOf(await notes.read())
    return await withBrokers(setting, async brokers => await prove(setting, brokers, record))
  } catch (error) {
    return [unknown(setting.connection.name, 'every producer refused by every broker', messageOf(error))]
  }
}

async function lift(
  { setting, notes, fault }: Parts,
  brokers: Brokers,
  cause: FenceCause,
  asked: number | null,
): Promise<readonly string[]> {
  const { wanted, connection, region, fence } = setting
  const note = await notes.read()
  if (note === null) {
    const left = standingAnywhere(await readEach(brokers, setting.resources), wanted)
    return ['nothing of this fence is on record', ...left.map(b => `left: ${bindingText(b)}, not this fence's`)]
  }
  requireSameWish({ region: region.name, name: setting.fence.name }, note, asked)
  const { added: noted, found } = recordOf(note)
  const added = noted.filter(b => couldBeOf(fence, b))
  const strange = without(noted, added)
  const resources = resourcesOf(union(wanted, strange))
  await notes.write({ ...note, cause, state: 'lifting' })
  try {
    await fault('fence:kafka:lift-noted')
    for (const binding of added) {
      // Exactly this binding; deleting one that is gone already changes nothing.
      await deleteBinding(brokers, binding)
      await fault('fence:kafka:undenied')
    }
    const views = await readUntil(brokers, resources, connection.callTimeoutMs, v => standingAnywhere(v, added).length === 0)
    requireAllRead(brokers, views)
    const [left] = standingAnywhere(views, added)
    if (left !== undefined) throw failed(brokers, `${bindingText(left)} is still read`)
    await fault('fence:kafka:lift-read-back')
    refuseStrange(setting, standingAnywhere(views, strange))
    requireSameWish({ region: region.name, name: setting.fence.name }, await notes.read(), note.asked)
    await notes.write(null)
    return [
      ...added.map(b => `removed: ${bindingText(b)}, broker ${brokers.alive.join(', ')}`),
      ...standingAnywhere(views, found).map(b => `left: ${bindingText(b)}, stood before the fence`),
      ...withoutRules(views).map(r => `${r}: no access rule is left; those that stood before the fence were removed by somebody else`),
    ]
  } catch (error) {
    throw await afterwards(setting, brokers, error, `homeregion fence lift ${region.name}`)
  }
}

async function status({ setting, notes }: Parts): Promise<FenceStatus> {
  const { wanted, resources } = setting
  const note = await notes.read()
  const since = { since: note?.since ?? null, cause: note?.cause ?? null, asked: note?.asked ?? null }
  try {
    return await withBrokers(setting, async brokers => {
      const views = await readEach(brokers, resources)
      if (views.every(v => v.resources === null)) return { ...since, since: null, state: 'unknown', holds: views.map(v => v.why ?? '') }
      const there = standing(views, wanted)
      const absent = without(wanted, there)
      const holds = there.map(b => `${bindingText(b)}${note === null ? ", not this fence's" : ''}`)
      if (note === null) return { ...since, state: 'lifted', holds }
      // Taken away behind our back: it does not stand, and `apply` brings it back, as after a crash.
      const state = note.state === 'applied' && absent.length > 0 ? 'applying' : note.state
      const silent = [...unread(views), ...brokers.missing].map(id => `broker ${id}: not read`)
      return { ...since, state, holds: [...holds, ...absent.map(b => `missing: ${bindingText(b)}`), ...silent] }
    })
  } catch (error) {
    return { ...since, since: null, state: 'unknown', holds: [messageOf(error)] }
  }
}

function lineOf(observation: Observation): string {
  const { verdict, observer, observed } = observation
  return `${verdict === 'pass' ? '' : 'not proved: '}${observer}: ${observed}`
}

function withoutRules(views: readonly BrokerView[]): readonly string[] {
  const [first] = views.flatMap(v => (v.resources === null ? [] : [v.resources]))
  return (first ?? []).filter(r => r.others === 0 && r.denies.length === 0).map(resourceText)
}

/** A broker that is silent may go by what it knew before. */
function requireAllRead(brokers: Brokers, views: readonly BrokerView[]): void {
  const [silent] = views.filter(v => v.resources === null)
  if (silent === undefined) return
  const fact = `${brokers.name}: broker ${unread(views).join(', ')} was not read (${silent.why ?? ''})`
  throw new HomeregionError('kafka-unreachable', { fact }, { retriable: true })
}

function failed(brokers: Brokers, fact: string): HomeregionError {
  return new HomeregionError('fence-failed', { fact: `${brokers.name}: ${fact}` })
}

function unsettled(brokers: Brokers): HomeregionError {
  return new HomeregionError('fence-failed', {
    fact: `${brokers.name}: its brokers do not agree on what stands, or none could be read`,
    state: 'Nothing was changed.',
    next: 'the same command again, once the brokers have caught up',
  })
}

/** The same failure with what stands now, as read; without a reading it is not known whether anything does. */
async function afterwards({ wanted, resources }: FenceSetting, brokers: Brokers, error: unknown, next: string): Promise<HomeregionError> {
  const views = await readEach(brokers, resources).catch((): readonly BrokerView[] => [])
  const read = views.filter(v => v.resources !== null).map(v => v.broker)
  const there = standing(views, wanted)
  const state =
    read.length === 0
      ? 'It is on record; no broker could be read, so that the DENY may stand or not.'
      : `Broker ${read.join(', ')}: ${there.length === 0 ? 'no DENY stands' : there.map(bindingText).join(', ')}; ${there.length} of ${wanted.length}.`
  const kept = isHomeregionError(error) && error.code !== 'kafka-unreachable' ? error.code : null
  const code = kept ?? (read.length === 0 ? 'outcome-unknown' : 'fence-failed')
  return new HomeregionError(
    code,
    { fact: messageOf(error), state, next },
    { cause: error, retriable: isHomeregionError(error) && error.retriable },
  )
}
