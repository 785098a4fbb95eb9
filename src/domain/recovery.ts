import type { Json } from './evidence.ts'
import type { ReconcileFinding } from './failover.ts'

/** A key that a forced failover took from a region: `epoch` is the one that was ended there. */
export type LostKey = { readonly key: string; readonly epoch: number }

/** A key of a region that was brought level: how many rows it has there now. */
export type LevelledKey = { readonly key: string; readonly rows: number }

/** `found`: writes that nobody had listed; where there is one, nothing was replaced, and `levelled` is empty. */
export type Levelled = { readonly levelled: readonly LevelledKey[]; readonly found: readonly ReconcileFinding[] }

/**
 * Compares a region that was failed over with the home its keys have now, and brings it level. Both databases have to answer. Every method
 * bounds its own time, reads or replaces the keys it is given together, and throws `region-unreachable`, `outcome-unknown`, `privilege-missing`,
 * `check-refused` (tables differ in shape, or a key's home is not `home`).
 */
export interface Recovery {
  /**
   * Writes of these keys that exist at `source` only, and those that `home` has of it and it has lost. Of a key that was brought level, and has its rows
   * as they were then, none of the rows: the home has moved on since. Only reads. Ordered by key and id.
   */
  findLost(source: string, home: string, keys: readonly LostKey[]): Promise<readonly ReconcileFinding[]>
  /**
   * Replaces the rows of these keys at `source` by those of `home`, in one transaction: guarded tables and idempotency records, with digests that
   * are equal before it commits. Events of other regions that those rows stand for are recorded in the inbox of `source`, and what its outbox still
   * held of the ended epoch is marked as published, since it was decided about. Looks once more in that transaction: only what is among `decided` is
   * replaced. A key that was brought level before stays as the region's stream has made it since. Idempotent.
   */
  level(source: string, home: string, keys: readonly LostKey[], decided: ReadonlySet<string>): Promise<Levelled>
  close(): Promise<void>
}

/**
 * Applies one lost write again at its key's new owner. It may be asked for the same write twice, after a crash between the write and the record of the
 * decision: `HOMEREGION_ITEM` is the same then. @throws `outcome-unknown` when the command did not end with 0,
 * `check-refused` when it could not be started
 */
export type Reapply = (write: Json, variables: Readonly<Record<string, string>>) => Promise<void>
