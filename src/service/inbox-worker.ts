import { setImmediate as turn } from 'node:timers/promises'
import { SqlFailure } from '../adapters/postgres/service-pool.ts'
import { BARRIER_EVENT_TYPE } from './envelope.ts'
import type { InboxStore, MayRecord, Outcome } from './inbox-apply.ts'
import type { HeldEvents, HoldReason, ReceivedEvent } from './inbox-held.ts'
import { LateEvents } from './inbox-quarantine.ts'
import { refusalOf } from './refusal.ts'

/** Tells whether a received event still counts, or its partition was assigned anew since. */
export type StillCurrent = (received: ReceivedEvent) => boolean

export type InboxWorker = {
  /** Resolves when each event is applied, known, recorded, in quarantine or held. @throws what the database failed with: nothing is settled then */
  take(received: readonly ReceivedEvent[], current: StillCurrent): Promise<void>
  /** Tries again what is held and due. */
  retryHeld(): void
  counts(): { readonly applied: number; readonly duplicates: number; readonly recorded: number; readonly quarantined: number }
  /** Resolves when nothing is being applied. */
  idle(): Promise<void>
}

type Waiting = {
  readonly received: readonly ReceivedEvent[]
  readonly current: StillCurrent
  readonly settle: (error: Error | null) => void
}

// Bounds one transaction, and with it how long its locks are held.
const BATCH = 500

/** One thing at a time: what arrives meanwhile is joined into the next transaction. */
export function createInboxWorker(store: InboxStore, held: HeldEvents): InboxWorker {
  const counts = { applied: 0, duplicates: 0, recorded: 0, quarantined: 0 }
  let queue: Waiting[] = []
  let retrying = false
  let running: Promise<void> | null = null

  const settle = (received: ReceivedEvent, outcome: Outcome, current: StillCurrent): void => {
    if (!isHold(outcome)) {
      held.release(received)
      counts[outcome === 'duplicate' ? 'duplicates' : outcome] += 1
    } else if (current(received)) held.hold(received, outcome, performance.now())
  }

  /** A barrier says that everything before it in its feed was applied: it may not overtake what is held of its key. */
  const nothingHeldBefore = (received: ReceivedEvent): boolean =>
    !held.of(received.event.key).some(h => h.feed === received.feed && h.partition === received.partition && h.offset < received.offset)

  const mayRecord =
    (all: readonly ReceivedEvent[]): MayRecord =>
    (index, before) => {
      const me = all[index]
      if (me === undefined || me.event.eventType !== BARRIER_EVENT_TYPE) return true
      const stuckHere = before.some((outcome, i) => isHold(outcome) && all[i]?.event.key === me.event.key && all[i]?.feed === me.feed)
      return !stuckHere && nothingHeldBefore(me)
    }

  const one = async (received: ReceivedEvent, current: StillCurrent): Promise<Outcome> => {
    const outcome = await applied(received).catch((error: unknown): Outcome => {
      if (error instanceof LateEvents) return 'refused'
      if (!(error instanceof SqlFailure)) throw error
      return refusalOf(error) === null ? 'failed' : 'refused'
    })
    settle(received, outcome, current)
    return outcome
  }

  const applied = async (received: ReceivedEvent): Promise<Outcome> => {
    const apply = async () => (await store.apply([received.event], mayRecord([received])))[0] ?? 'failed'
    try {
      return await apply()
    } catch (error) {
      if (!(error instanceof LateEvents)) throw error
      const [late] = await store.quarantine([received.event])
      // Ownership changed between the two. If it changes once more it is held, and tried again.
      return late === undefined || late === 'apply' ? await apply() : late
    }
  }

  /**
   * Tries what is held of a key, older epochs first, then lower versions whichever feed they came from, and barriers last. So what follows an event
   * that stays held is no older than it, and not late either.
   */
  const drain = async (key: string): Promise<void> => {
    const stuck = new Set<string>()
    for (const received of [...held.of(key)].sort(byEpochAndVersion)) {
      const aggregate = `${received.event.aggregateType} ${received.event.aggregateId}`
      if (stuck.has(aggregate)) continue
      const outcome = await one(received, () => true)
      if (outcome === 'gap') stuck.add(aggregate)
      // Refused here and now: the rest of the key would be refused as well.
      if (outcome === 'refused') return
    }
  }

  const several = async (received: readonly ReceivedEvent[], current: StillCurrent): Promise<void> => {
    const behind = received.filter(r => held.has(r.event.key))
    const free = received.filter(r => !held.has(r.event.key))
    for (let from = 0; from < free.length; from += BATCH) await together(free.slice(from, from + BATCH), current)
    for (const r of behind) settle(r, 'waiting', current)
    for (const key of new Set(received.map(r => r.event.key))) if (held.has(key)) await drain(key)
  }

  const together = async (free: readonly ReceivedEvent[], current: StillCurrent): Promise<void> => {
    if (free.length === 0) return
    try {
      const outcomes = await store.apply(
        free.map(r => r.event),
        mayRecord(free),
      )
      for (const [i, r] of free.entries()) settle(r, outcomes[i] ?? 'failed', current)
    } catch (error) {
      const rest = error instanceof LateEvents ? await withoutLate(free, error.places, current) : null
      // Fewer each time, so it comes to an end.
      if (rest !== null && rest.length < free.length) return await together(rest, current)
      if (!(error instanceof SqlFailure || error instanceof LateEvents)) throw error
      for (const r of free) {
        if (held.has(r.event.key)) settle(r, 'waiting', current)
        else await one(r, current)
      }
    }
  }

  /** Puts the late ones away; the others in their order, and those that are not late any more. All of them when the database refused. */
  const withoutLate = async (
    free: readonly ReceivedEvent[],
    places: ReadonlySet<number>,
    current: StillCurrent,
  ): Promise<readonly ReceivedEvent[]> => {
    const late = free.filter((_, i) => places.has(i))
    const outcomes = await store.quarantine(late.map(r => r.event)).catch((error: unknown) => {
      // Another consumer may have been faster with one of them: each is tried alone.
      if (error instanceof SqlFailure) return []
      throw error
    })
    const gone = new Set<ReceivedEvent>()
    for (const [i, r] of late.entries()) {
      const outcome = outcomes[i] ?? 'apply'
      if (outcome === 'apply') continue
      settle(r, outcome, current)
      gone.add(r)
    }
    return free.filter(r => !gone.has(r))
  }

  const run = async (): Promise<void> => {
    while (queue.length > 0 || retrying) {
      if (retrying) {
        retrying = false
        // A database that cannot be reached is met again by the next events; the held ones stay held.
        for (const key of held.due(performance.now())) await drain(key).catch(() => undefined)
      }
      const taken = takeUpTo(BATCH)
      if (taken.length === 0) continue
      const failure = await several(
        taken.flatMap(w => w.received),
        r => taken.every(w => w.current(r)),
      ).then(
        () => null,
        (error: unknown) => (error instanceof Error ? error : new Error(String(error))),
      )
      for (const w of taken) w.settle(failure)
    }
  }

  const takeUpTo = (limit: number): readonly Waiting[] => {
    let events = 0
    const taken = queue.filter((w, i) => {
      events += w.received.length
      return i === 0 || events <= limit
    })
    queue = queue.slice(taken.length)
    return taken
  }

  const wake = (): void => {
    // A turn later, so that the other partitions of the same fetch are in the queue.
    running ??= turn()
      .then(run)
      .finally(() => {
        running = null
        if (queue.length > 0 || retrying) wake()
      })
  }

  return {
    take: async (received, current) => {
      if (received.length === 0) return
      await new Promise<void>((resolve, reject) => {
        queue.push({ received, current, settle: error => (error === null ? resolve() : reject(error)) })
        wake()
      })
    },
    retryHeld: () => {
      if (held.size === 0) return
      retrying = true
      wake()
    },
    counts: () => ({ ...counts }),
    idle: async () => {
      while (running !== null) await running
    },
  }
}

function byEpochAndVersion(a: ReceivedEvent, b: ReceivedEvent): number {
  const barrier = (r: ReceivedEvent) => (r.event.eventType === BARRIER_EVENT_TYPE ? 1 : 0)
  return a.event.ownerEpoch - b.event.ownerEpoch || barrier(a) - barrier(b) || a.event.aggregateVersion - b.event.aggregateVersion
}

function isHold(outcome: Outcome): outcome is HoldReason {
  return outcome !== 'applied' && outcome !== 'duplicate' && outcome !== 'recorded' && outcome !== 'quarantined'
}
