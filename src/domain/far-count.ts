export type CanaryKey = { readonly key: string; readonly epoch: number }

/** What the consumer of another region made of the events that a region wrote for these keys under these epochs. */
export type FarCount = {
  readonly events: number
  /** Those that the service wrote itself; none: its consumers were not exercised. */
  readonly writes: number
  /** Versions of an aggregate that were written twice, and events that were applied twice. */
  readonly duplicates: number
  /** Versions of an aggregate that nobody wrote between two that somebody did, and events that were not applied. */
  readonly gaps: number
}

export interface FarConsumer {
  /** Events that were purged from the outbox are not counted. @throws `region-unreachable` */
  count(source: string, target: string, keys: readonly CanaryKey[]): Promise<FarCount>
  close(): Promise<void>
}
