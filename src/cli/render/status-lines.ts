import { type Approval, type ApprovalPolicy, namesOfApprovers, tallyOf } from '../../domain/approval.ts'
import type { UnfinishedDrill } from '../../domain/drill.ts'
import { formatMs } from '../../domain/duration.ts'
import type { LeaseState } from '../../domain/failover.ts'
import type { FenceEvent, LoggedFence } from '../../domain/fence.ts'
import type { Run } from '../../domain/journal.ts'
import { showKey } from '../../domain/key.ts'
import type { LateEvents } from '../late-events.ts'
import { onOneLine } from './error.ts'
import { approvalLines } from './failover.ts'
import { counted } from './words.ts'

/** How many have to agree before the run goes on; how many have, the approvals say. */
export type AwaitedConsent = { readonly runId: string; readonly policy: ApprovalPolicy }

/** `state` null: never granted. */
export type RegionLease = { readonly region: string; readonly onAgentOutage: 'stop' | 'keep'; readonly state: LeaseState | null }

/** `stops`: keys that are at home in the region and cannot be written for the fence, where no run and no exile explains it. */
export type StandingFence = LoggedFence & { readonly stops: number }

/** Somebody has to look at it: nothing withholds it, and yet it is over. */
export function leaseIsMissing({ state }: RegionLease): boolean {
  return state === null || (state.withheldBy === null && state.leftMs - state.marginMs <= 0)
}

export function leaseLine(lease: RegionLease): string {
  const { region, state } = lease
  if (state === null || state.generation === 0) return `lease of ${region}: never granted, ${endText(lease)} (homeregion agent)`
  const over = state.leftMs > 0 ? `over in ${formatMs(state.leftMs)}` : `over for ${formatMs(-state.leftMs)}`
  if (state.withheldBy !== null) return `lease of ${region}: withheld by run ${state.withheldBy}, ${over}, margin included`
  if (leaseIsMissing(lease)) return `lease of ${region}: NOT RENEWED, ${over}, ${endText(lease)} (grant ${state.generation})`
  return `lease of ${region}: renewed ${formatMs(renewedAgoMs(state))} ago; ${over} if no agent renews it`
}

function renewedAgoMs({ durationMs, marginMs, leftMs }: LeaseState): number {
  return Math.max(0, durationMs + marginMs - leftMs)
}

/** What the region does without it is known of the region only where it has said so; the rest is what the file at hand wants. */
function endText({ onAgentOutage, state }: RegionLease): string {
  if (onAgentOutage === 'keep') return 'configured to let it write on'
  return state?.stops === true ? 'its boundary refuses writes' : 'its boundary refuses writes if it was installed with it'
}

export function lateLines({ region, undecided, why, listed, next }: LateEvents): readonly string[] {
  if (undecided === null) return [`late events in ${region}: not seen (${why ?? '?'})`]
  return [`late events in ${region}: ${undecided} undecided, kept and not applied`, `  ${listedText(listed, undecided)}`, `  next: ${next}`]
}

function listedText({ events, of, run }: LateEvents['listed'], undecided: number): string {
  const those = of < undecided ? `of the first ${of}, ` : ''
  if (run === null) return `${those}none is on the list yet`
  if (events < of) return `${those}${events} on the list of run ${run} as well, ${of - events} on none yet`
  return `${of < undecided ? `the first ${of} are` : 'the same are'} on the list of run ${run}: one decision closes both`
}

export function drillLines({ at, by, home, target, keys, away, openRun }: UnfinishedDrill): readonly string[] {
  const names = keys.map(key => showKey(key)).join(',')
  const where = away.length === 0 ? `at home in ${home}` : `${away.length} of ${counted(keys.length, 'key')} away from ${home}`
  return [
    `DRILL ${home} -> ${target} begun at ${at} by ${by} has not ended: ${where}`,
    // One that has a run is told of there.
    ...(openRun === null ? [`  next: homeregion drill --keys ${names}   (brings them home first)`] : []),
  ]
}

type Consent = { readonly text: string; readonly state: 'pending' | 'given' | 'rejected' }

/** What the run stopped for, and whether it still has to. */
function consentOf(awaited: AwaitedConsent | undefined, said: readonly Approval[]): Consent | null {
  if (awaited === undefined) return null
  if (said.some(a => a.verdict === 'rejected')) return { text: 'rejected: it will hand nothing over', state: 'rejected' }
  const { policy } = awaited
  const { given, enough, glassBroken } = tallyOf(policy, said)
  if (glassBroken) return { text: 'approved: the glass was broken', state: 'given' }
  return enough
    ? { text: `approved: ${given} of ${policy.needed}`, state: 'given' }
    : { text: `waits for approval: ${given} of ${policy.needed} (${namesOfApprovers(policy)})`, state: 'pending' }
}

/** A process that waits looks by itself; where none does, somebody has to type on. */
function goesOn({ id, leaseAlive }: Run, consent: Consent | null): readonly string[] {
  const abort = `homeregion abort ${id}`
  if (consent?.state === 'rejected') return [`  next: ${abort}`]
  if (consent?.state === 'pending')
    return [
      `  next: homeregion approve ${id}   ${leaseAlive ? '(it then goes on by itself)' : `then   homeregion resume ${id}`}`,
      `   or: ${abort}`,
    ]
  return leaseAlive ? [] : [`  next: homeregion resume ${id}`, `   or: ${abort}`]
}

export function runLines(run: Run, awaited: AwaitedConsent | undefined, said: readonly Approval[]): readonly string[] {
  const consent = consentOf(awaited, said)
  const who = run.holder === null ? 'nobody' : `${run.holder.user}@${run.holder.host} pid ${run.holder.pid}`
  const lease = run.leaseAlive
    ? `held by ${who} for ${formatMs(run.leaseLeftMs)} more`
    : `NOT RUNNING: last held by ${who}, lease over for ${formatMs(-run.leaseLeftMs)}`
  return [
    `run ${run.id} ${run.state} ${run.runbookName}: ${movesText(run)}`,
    `  since ${run.startedAt} by ${run.startedBy}; ${lease}`,
    ...(consent === null ? [] : [`  ${consent.text}`]),
    ...approvalLines(said),
    ...goesOn(run, consent),
  ]
}

const OUTCOMES = { moved: 'moved', 'rolled-back': 'rolled back', 'not-moved': 'not moved', unknown: 'not settled' } as const

/** All of its keys, and how many are done: `49 keys region-a -> region-b (49 moved)`. */
export function movesText({ moves }: Pick<Run, 'moves'>): string {
  const [first] = moves
  if (first === undefined) return 'no key'
  const ends = Object.entries(OUTCOMES).flatMap(([outcome, word]) => {
    const count = moves.filter(m => m.outcome === outcome).length
    return count === 0 ? [] : [moves.length === 1 ? word : `${count} ${word}`]
  })
  const open = moves.filter(m => m.outcome === null).length
  if (open > 0 && ends.length > 0) ends.push(`${open} not yet`)
  const sources = [...new Set(moves.map(m => m.source))].join(', ')
  const what = moves.length === 1 ? showKey(first.key) : counted(moves.length, 'key')
  return `${what} ${sources} -> ${first.target}${ends.length === 0 ? '' : ` (${ends.join(', ')})`}`
}

// What the newest entry of a fence says about it, the worst first.
const FENCE_WORDS: Readonly<Record<FenceEvent, string>> = {
  'found-lifted': 'FOUND LIFTED: it is on record as applied, and does not stand',
  'apply-failed': 'NOT APPLIED AS A WHOLE',
  'lift-failed': 'NOT LIFTED AS A WHOLE',
  'apply-started': 'being applied (or its process died)',
  'lift-started': 'being lifted (or its process died)',
  applied: 'stands',
  lifted: 'lifted',
  rotated: 'lifted',
  noted: 'noted',
}

export function fenceLines({ region, fence, event, by, at, reason, stops }: StandingFence): readonly string[] {
  const line = `fence ${fence} of ${region}: ${FENCE_WORDS[event]}, by ${by} at ${at}${reason === null ? '' : ` (${onOneLine(reason)})`}`
  if (event !== 'applied') return [`${line}; next: homeregion fence status ${region}`]
  if (stops === 0) return [line]
  return [
    line,
    `  ${counted(stops, 'key')} at home in ${region}, and no run or exile explains it`,
    `  next: homeregion fence lift ${region} --reason TEXT   (or look: homeregion fence status ${region})`,
  ]
}

export function worstFence(fences: readonly StandingFence[]): readonly StandingFence[] {
  const rank = ({ event, stops }: StandingFence) => Object.keys(FENCE_WORDS).indexOf(event) - (stops > 0 ? 1 : 0)
  return [...fences].sort((a, b) => rank(a) - rank(b))
}
