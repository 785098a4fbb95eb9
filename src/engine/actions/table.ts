import type { PlannedMove } from '../../domain/plan.ts'
import type { ActionKind, ActionUse, RunAction, Step } from '../../domain/runbook.ts'
import type { KeyMove } from '../key-move.ts'
import type { Action } from './action.ts'
import { activate } from './activate.ts'
import { exec, http, notify, pause, sql } from './author.ts'
import { drain } from './drain.ts'
import { fence } from './fence.ts'
import { fenceRegion } from './fence-region.ts'
import { isolate } from './isolate.ts'

/** One entry an action kind that a run may have; a kind without one does not compile. */
const ACTIONS: { readonly [K in RunAction]: Action<K> } = {
  drain,
  fence,
  activate,
  isolate,
  'fence-region': fenceRegion,
  exec,
  http,
  notify,
  sql,
  pause,
}

export async function applyAction(key: KeyMove, step: Step): Promise<void> {
  const use = step.action
  if (use === null) return
  switch (use.kind) {
    case 'drain':
      return await ACTIONS.drain.apply(key, step, use)
    case 'fence':
      return await ACTIONS.fence.apply(key, step, use)
    case 'activate':
      return await ACTIONS.activate.apply(key, step, use)
    case 'isolate':
      return await ACTIONS.isolate.apply(key, step, use)
    case 'fence-region':
      return await ACTIONS['fence-region'].apply(key, step, use)
    case 'exec':
      return await ACTIONS.exec.apply(key, step, use)
    case 'notify':
      return await ACTIONS.notify.apply(key, step, use)
    case 'http':
      return await ACTIONS.http.apply(key, step, use)
    case 'sql':
      return await ACTIONS.sql.apply(key, step, use)
    case 'pause':
      return await ACTIONS.pause.apply(key, step, use)
    default:
      throw noRunAction(use.kind)
  }
}

export function actionOf(kind: ActionKind): Action {
  const found: Partial<Record<ActionKind, unknown>> = ACTIONS
  if (found[kind] === undefined) throw noRunAction(kind)
  return found[kind] as Action
}

/** The linter keeps the steps of a rejoin out of what a run follows, and every verb that opens one asks for its intent. */
function noRunAction(kind: ActionKind): RangeError {
  return new RangeError(`${kind} is no action of a run`)
}

/** One line for the plan. */
export function describeAction(use: ActionUse, move: PlannedMove): string {
  return actionOf(use.kind).plan(move, use)
}
