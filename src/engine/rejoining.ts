import { HomeregionError } from '../domain/errors.ts'
import type { Evidence } from '../domain/evidence.ts'
import type { Exile } from '../domain/failover.ts'
import type { Fence } from '../domain/fence.ts'
import type { Clock, FaultPoint, Hooks } from '../domain/ports.ts'
import type { CheckUse, Runbook, Step } from '../domain/runbook.ts'
import { type ListParts, notInExile, openExile, type Taken } from './lost-keys.ts'
import type { FenceWatcher } from './region-fences.ts'

export type RejoinParts = ListParts & {
  /** With a database of their own. */
  readonly others: readonly string[]
  readonly fences: (region: string) => readonly Fence[]
  /** Linted, and pinned for this exile; `done`: steps of its author that were done before. */
  readonly runbook: Runbook
  readonly done: readonly string[]
  readonly hooks: Hooks
  readonly clock: Clock
  readonly fault: FaultPoint
  readonly watcher: FenceWatcher
  /** One look of each check at the two sides of these keys. */
  readonly look: (step: Step, uses: readonly CheckUse[], taken: readonly Taken[]) => Promise<readonly Evidence[]>
  /** A person's yes to a step of an author. */
  readonly confirm: (step: Step) => Promise<boolean>
  /** Topology `shared`: one database holds every region's rows, so there is nothing to list and nothing to bring level. */
  readonly shared: boolean
  /** The region may write under a lease only. */
  readonly leased: boolean
  readonly defaultHome: string | null
  readonly by: string
  /** What was done and read back, one line each, as it happens. */
  readonly tell: (line: string) => void
}

/** A region on its way back. */
export type Rejoining = {
  readonly parts: RejoinParts
  readonly region: string
  readonly reason: string
  /** Read once, when it is first needed. */
  readonly taken: () => Promise<readonly Taken[]>
}

export async function exileOf({ controlPlane }: RejoinParts, region: string): Promise<Exile> {
  const exile = await openExile(controlPlane, region)
  if (exile === null) throw notInExile(region)
  return exile
}

export function declined(region: string, { id }: Step): HomeregionError {
  return new HomeregionError('declined', {
    fact: `step ${id} was not confirmed`,
    state: `${region} is fenced, as read back, and stays in exile.`,
    next: `homeregion rejoin ${region} --reason TEXT`,
  })
}

export function interrupted(region: string, last: Step | undefined): HomeregionError {
  return new HomeregionError('interrupted', {
    fact: last === undefined ? 'interrupted before the first step' : `interrupted after step ${last.id}`,
    state: last === undefined ? 'Nothing was changed.' : `${region} stays in exile; what was done is on record.`,
    next: `homeregion rejoin ${region} --reason TEXT`,
  })
}

/** What a database or a command said knows nothing of the return: what stands, and that the same command goes on, is said here. */
export function stoppedIn(error: HomeregionError, region: string, { id }: Step, last: Step | undefined): HomeregionError {
  const { fact, state, next } = error.text
  if (state !== undefined && next !== undefined) return error
  const before = last === undefined ? 'nothing was done before it' : `what was done up to step ${last.id} is on record`
  const text = {
    fact: `step ${id}: ${fact}`,
    state: state ?? `${region} stays in exile; ${before}.`,
    next: next ?? `homeregion rejoin ${region} --reason TEXT   (goes on from there)`,
  }
  return new HomeregionError(error.code, text, { cause: error, retriable: error.retriable, fields: { ...error.fields } })
}

export function changedMeanwhile(region: string): HomeregionError {
  return new HomeregionError('check-refused', {
    fact: `rows of ${region} changed while they were brought level`,
    state: `${region} is fenced, as read back; what changed was not replaced.`,
    next: `homeregion rejoin ${region} --reason TEXT`,
  })
}
