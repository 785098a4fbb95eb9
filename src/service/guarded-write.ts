import { randomUUID } from 'node:crypto'
import { type ServicePool, type ServiceTransaction, SqlFailure } from '../adapters/postgres/service-pool.ts'
import type { OutboxContract } from '../domain/config.ts'
import type { Json } from '../domain/evidence.ts'
import { payloadOf } from './envelope.ts'
import { findRecord, type IdempotencyTable, insertRecord } from './idempotency.ts'
import { insertEvent } from './outbox.ts'
import type { OwnershipCache } from './ownership-cache.ts'
import { type Refusal, refusalOf } from './refusal.ts'

/** What a business change did to one aggregate, and what the caller is told. */
export type Change = {
  readonly aggregateType: string
  readonly aggregateId: string
  /** +1 at each change of the aggregate, without gap. */
  readonly aggregateVersion: number
  readonly eventType: string
  readonly data: Json
  readonly response: Json
}

export type WriteRequest = {
  readonly key: string
  /** Epoch the caller believes in; null takes the one this region knows. A caller that names one is refused when it is not current. */
  readonly epoch: number | null
  readonly idempotencyKey: string
  /** The business rows. Its statements must not wait for anything but the database: they hold the key's guard. */
  readonly change: (tx: ServiceTransaction, under: { readonly region: string; readonly epoch: number }) => Promise<Change>
}

export type WriteResult =
  | { readonly kind: 'committed'; readonly response: Json; readonly epoch: number; readonly eventId: string }
  /** The same idempotency key was committed before, here or in another region; this is its answer. */
  | { readonly kind: 'replayed'; readonly response: Json }
  | { readonly kind: 'refused'; readonly refusal: Refusal }

export interface GuardedWriter {
  /**
   * Business rows, outbox row and idempotency record in one transaction, or none of them.
   * @throws `outcome-unknown` when the answer to the commit was lost (ask again with the same idempotency key), `region-unreachable`, SqlFailure
   */
  write(request: WriteRequest): Promise<WriteResult>
}

export type GuardedWriterOptions = {
  readonly region: string
  readonly pool: ServicePool
  readonly outbox: OutboxContract
  readonly idempotency: IdempotencyTable
  readonly cache: OwnershipCache
  /** Current epoch of a key that is at home here, from the region's own boundary; null where it knows none. */
  readonly currentEpoch: (key: string) => Promise<number | null>
  /** Called after each commit: wakes a relay in this process without the way over NOTIFY. */
  readonly committed: () => void
}

const UNIQUE_VIOLATION = '23505'

export function createGuardedWriter(options: GuardedWriterOptions): GuardedWriter {
  const { region, pool, outbox, idempotency, cache } = options

  const attempt = async (request: WriteRequest, epoch: number): Promise<WriteResult> => {
    const { key, idempotencyKey: id } = request
    const eventId = randomUUID()
    return await pool.transaction(async tx => {
      // The guard compares it with the current epoch at every row, so what the envelope says was true when the row was written.
      tx.send({ name: 'homeregion-permit', sql: `select set_config('homeregion.epoch', $1, true)`, parameters: [String(epoch)] })
      const earlier = tx.query(findRecord(idempotency, key, id))
      const changing = request.change(tx, { region, epoch })
      changing.catch(() => undefined)
      const [record] = (await earlier).rows
      if (record !== undefined) throw new Replay(record['response'] as Json)
      const change = await changing
      const payload = payloadOf(change.data, { id, response: change.response })
      tx.send(insertEvent(outbox, { ...change, eventId, key, sourceRegion: region, homeRegion: region, ownerEpoch: epoch }, payload))
      tx.send(insertRecord(idempotency, { key, id, response: change.response }))
      return { kind: 'committed', response: change.response, epoch, eventId }
    })
  }

  const settled = async (request: WriteRequest, epoch: number): Promise<WriteResult> => {
    try {
      const result = await attempt(request, epoch)
      options.committed()
      return result
    } catch (error) {
      if (error instanceof Replay) return { kind: 'replayed', response: error.response }
      const refusal = refusalOf(error)
      if (refusal !== null) {
        if (refusal.homeRegion !== null && refusal.epoch !== null)
          cache.learn(request.key, { homeRegion: refusal.homeRegion, epoch: refusal.epoch })
        return { kind: 'refused', refusal }
      }
      // Two requests with one idempotency key at the same time: the slower one answers what the faster one committed.
      if (!(error instanceof SqlFailure && error.sqlstate === UNIQUE_VIOLATION)) throw error
      const [record] = (await pool.query(findRecord(idempotency, request.key, request.idempotencyKey))).rows
      if (record === undefined) throw error
      return { kind: 'replayed', response: record['response'] as Json }
    }
  }

  const knownEpoch = async (key: string): Promise<number> => {
    const hint = cache.hint(key)
    if (hint?.homeRegion === region) return hint.epoch
    // 0 is no epoch: the boundary refuses it, and says what it knows of the key.
    return (await options.currentEpoch(key)) ?? 0
  }

  return {
    write: async request => {
      const first = await settled(request, request.epoch ?? (await knownEpoch(request.key)))
      const stale = first.kind === 'refused' && first.refusal.kind === 'staleEpoch' && request.epoch === null
      // The caller named no epoch and this region's hint was old: the boundary has just told the current one.
      return stale && first.refusal.epoch !== null ? await settled(request, first.refusal.epoch) : first
    },
  }
}

class Replay extends Error {
  readonly response: Json

  constructor(response: Json) {
    super('answered before')
    this.response = response
  }
}
