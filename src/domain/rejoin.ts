import type { PinnedRunbook } from './runbook.ts'

/** What a region in exile is brought back by, as it was pinned. */
export type RejoinRunbook = {
  /** 1 for the first; each that replaces it is one more. */
  readonly nth: number
  readonly name: string
  readonly text: string
  readonly sha256: string
  readonly origin: string
  readonly pinnedAt: string
  readonly pinnedBy: string
  /** Steps of its author that were done since it was pinned, and since the last failover from the region. */
  readonly done: readonly string[]
}

/** The part of the control plane that a region comes back by. Errors and bounds as for `ControlPlane`. */
export interface RejoinControl {
  /** Of the region's open exile; null: none is pinned, or there is no open exile. */
  rejoinRunbook(region: string): Promise<RejoinRunbook | null>
  /**
   * Pins it for the open exile in place of the one that is `after` (0: the first). Returns the one that is pinned now: another one where somebody
   * else was faster. @throws `region-exiled` when there is no open exile
   */
  pinRejoinRunbook(region: string, pinned: PinnedRunbook, after: number): Promise<RejoinRunbook>
  /** An author's step of the pinned runbook was done. @throws `region-exiled` when nothing is pinned */
  noteRejoinStep(region: string, step: string): Promise<void>
}
