import { describe, expect, test } from 'vitest'
import { SqlFailure } from '../../src/adapters/postgres/service-pool.ts'
import { BARRIER_EVENT_TYPE, type ServiceEvent } from '../../src/service/envelope.ts'
import type { InboxStore, Outcome } from '../../src/service/inbox-apply.ts'
import { createHeldEvents, type ReceivedEvent } from '../../src/service/inbox-held.ts'
import { LateEvents } from '../../src/service/inbox-quarantine.ts'
import { createInboxWorker } from '../../src/service/inbox-worker.ts'

type Region = {
  readonly versions: Map<string, number>
  /** Ids in the order they were recorded. */
  readonly inbox: string[]
  /** Keys that the boundary refuses. */
  readonly refused: Set<string>
  /** Keys at home here, with their epoch: what is older is late. */
  readonly home: Map<string, number>
  readonly quarantine: string[]
  readonly store: InboxStore
}

/** A region in memory: the rules of the inbox's SQL, all or nothing. */
function createRegion(): Region {
  const versions = new Map<string, number>()
  const inbox: string[] = []
  const refused = new Set<string>()
  const home = new Map<string, number>()
  const quarantine: string[] = []
  const isLate = (e: ServiceEvent) => e.ownerEpoch < (home.get(e.key) ?? 0)
  const store: InboxStore = {
    quarantine: events =>
      Promise.resolve(
        events.map(e => {
          if (inbox.includes(e.eventId)) return 'duplicate'
          if (!isLate(e)) return 'apply'
          quarantine.push(e.eventId)
          inbox.push(e.eventId)
          return 'quarantined'
        }),
      ),
    apply: (events, mayRecord) => {
      const late = new Set(events.flatMap((e, i) => (isLate(e) ? [i] : [])))
      if (late.size > 0) return Promise.reject(new LateEvents(late))
      if (events.some(e => refused.has(e.key))) return Promise.reject(refusal())
      const outcomes: Outcome[] = []
      for (const [i, e] of events.entries()) {
        const known = versions.get(`${e.key} ${e.aggregateId}`) ?? 0
        const outcome = (): Outcome => {
          if (inbox.includes(e.eventId)) return 'duplicate'
          if (e.eventType === BARRIER_EVENT_TYPE) return mayRecord(i, outcomes) ? 'recorded' : 'waiting'
          if (e.aggregateVersion !== known + 1) return e.aggregateVersion > known ? 'gap' : 'diverged'
          versions.set(`${e.key} ${e.aggregateId}`, e.aggregateVersion)
          return 'applied'
        }
        const it = outcome()
        outcomes.push(it)
        if (it === 'applied' || it === 'recorded') inbox.push(e.eventId)
      }
      return Promise.resolve(outcomes)
    },
  }
  return { versions, inbox, refused, home, quarantine, store }
}

function refusal(): SqlFailure {
  return Object.assign(Object.create(SqlFailure.prototype) as SqlFailure, { sqlstate: 'HR001', detail: null })
}

let offset = 0n
function event(id: string, version: number, over: Partial<ServiceEvent> = {}, feed = 0): ReceivedEvent {
  offset += 1n
  const e: ServiceEvent = {
    eventId: id,
    key: 'k',
    aggregateType: 'account',
    aggregateId: 'a',
    eventType: 'changed',
    sourceRegion: 'region-a',
    homeRegion: 'region-a',
    ownerEpoch: 1,
    aggregateVersion: version,
    occurredAt: '',
    data: null,
    answer: null,
    raw: { headers: {}, value: '' },
    ...over,
  }
  return { event: e, feed, generation: 1, partition: 0, offset }
}
const barrier = (id: string, epoch: number) => event(id, 0, { eventType: BARRIER_EVENT_TYPE, ownerEpoch: epoch })
const always = () => true

function start() {
  const region = createRegion()
  const held = createHeldEvents()
  return { region, held, worker: createInboxWorker(region.store, held) }
}

describe('the inbox', () => {
  test('applies an event once, however often it is delivered', async () => {
    const { region, worker } = start()
    const first = event('e1', 1)
    await worker.take([first, first], always)
    await worker.take([first], always)
    expect([region.inbox, worker.counts()]).toEqual([['e1'], { applied: 1, duplicates: 2, recorded: 0, quarantined: 0 }])
  })

  test('holds an event that is early, and applies it when the one before it arrives from another feed', async () => {
    const { region, held, worker } = start()
    await worker.take([event('e2', 2, {}, 1)], always)
    expect(held.counts().gap).toBe(1)
    await worker.take([event('e1', 1, {}, 0)], always)
    expect([region.inbox, held.size]).toEqual([['e1', 'e2'], 0])
  })

  test('does not record a barrier while an event before it is held', async () => {
    const { region, held, worker } = start()
    await worker.take([event('e2', 2), barrier('b', 1)], always)
    expect([region.inbox, held.counts().waiting]).toEqual([[], 1])
    await worker.take([event('e1', 1, {}, 1)], always)
    expect(region.inbox).toEqual(['e1', 'e2', 'b'])
  })

  test('takes a barrier that comes twice, and after events of the next epoch, for one barrier', async () => {
    const { region, worker } = start()
    const b = barrier('b', 1)
    await worker.take([event('e1', 1), b, event('e2', 2, { ownerEpoch: 2 }), b], always)
    await worker.take([b, event('e3', 3, { ownerEpoch: 2 })], always)
    expect(region.inbox).toEqual(['e1', 'b', 'e2', 'e3'])
  })

  test('holds what the boundary refuses, lets other keys pass, and applies it when it is admitted', async () => {
    const { region, held, worker } = start()
    region.refused.add('k')
    await worker.take([event('e1', 1), event('o1', 1, { key: 'other' }), event('e2', 2)], always)
    expect([region.inbox, held.counts().refused, held.size]).toEqual([['o1'], 1, 2])
    region.refused.clear()
    await worker.take([event('e3', 3)], always)
    expect([region.inbox, held.size]).toEqual([['o1', 'e1', 'e2', 'e3'], 0])
  })

  test('holds an event whose version this region has from another event, and never applies it', async () => {
    const { region, held, worker } = start()
    await worker.take([event('mine', 1), event('theirs', 1)], always)
    expect([region.inbox, held.counts().diverged]).toEqual([['mine'], 1])
  })

  test('settles nothing when the database cannot be reached', async () => {
    const { held } = start()
    const worker = createInboxWorker(
      { apply: () => Promise.reject(new Error('gone')), quarantine: () => Promise.reject(new Error('gone')) },
      held,
    )
    await expect(worker.take([event('e1', 1)], always)).rejects.toThrow('gone')
    expect([held.size, worker.counts().applied]).toEqual([0, 0])
  })

  test('puts late events away, whatever their version, and applies the others of the batch in their order', async () => {
    const { region, held, worker } = start()
    region.home.set('k', 2)
    const late = [event('gap', 9), barrier('b', 1), event('taken', 1)]
    await worker.take([event('o1', 1, { key: 'o' }), ...late, event('o2', 2, { key: 'o' })], always)
    expect([region.quarantine, region.inbox.filter(id => id.startsWith('o')), held.size]).toEqual([['gap', 'b', 'taken'], ['o1', 'o2'], 0])
    await worker.take(late, always)
    expect(worker.counts()).toEqual({ applied: 2, duplicates: 3, recorded: 0, quarantined: 3 })
  })

  test('puts away what it held when the key comes home, and nothing older stays behind what is still held', async () => {
    const { region, held, worker } = start()
    await worker.take([event('old', 5), event('ahead', 3, { ownerEpoch: 3 }), barrier('b', 1)], always)
    expect(held.size).toBe(3)
    region.home.set('k', 2)
    await worker.take([event('older', 7, { aggregateId: 'x' })], always)
    expect([region.quarantine.sort(), held.of('k').map(h => h.event.eventId)]).toEqual([['b', 'old', 'older'], ['ahead']])
  })

  test('applies an event that was late when it was tried and is not any more', async () => {
    const { region, held, worker } = start()
    region.home.set('k', 2)
    const store: InboxStore = {
      ...region.store,
      quarantine: events => {
        region.home.delete('k')
        return region.store.quarantine(events)
      },
    }
    await createInboxWorker(store, held).take([event('e1', 1), event('e2', 2)], always)
    expect([region.inbox, region.quarantine, held.size]).toEqual([['e1', 'e2'], [], 0])
    expect(worker.counts().quarantined).toBe(0)
  })

  test('forgets what was read before its partitions were assigned anew', async () => {
    const { held, worker } = start()
    await worker.take([event('e2', 2)], always)
    held.forget(0)
    expect(held.size).toBe(0)
    await worker.take([event('e3', 3)], () => false)
    expect(held.size).toBe(0)
  })
})

describe('held events', () => {
  test('keep the committed offset of their partition back', () => {
    const held = createHeldEvents()
    const [one, two] = [event('x', 5), event('y', 6)]
    held.hold(two, 'gap', 0)
    held.hold(one, 'gap', 0)
    expect(held.lowest(0, 0)).toBe(one.offset)
    held.release(one)
    expect(held.lowest(0, 0)).toBe(two.offset)
    expect(held.lowest(0, 1)).toBeNull()
  })
  test('are tried again at growing intervals', () => {
    const held = createHeldEvents()
    held.hold(event('x', 5), 'refused', 0)
    const tried = Array.from({ length: 3000 }, (_, ms) => held.due(ms).length).reduce((a, b) => a + b, 0)
    expect(tried).toBeGreaterThan(5)
    expect(tried).toBeLessThan(10)
  })
})
