import { formatMs } from '../../domain/duration.ts'
import type { Approval, Drill, LeaseState } from '../../domain/failover.ts'
import type { FenceEvent, LoggedFence } from '../../domain/fence.ts'
import type { Run } from '../../domain/journal.ts'
import { showKey } from '../../domain/key.ts'
import type { OwnershipRecord } from '../../domain/ownership.ts'
import type { LogRow } from '../../domain/ports.ts'
import type { Printer } from '../context.ts'
import type { LateEvents } from '../late-events.ts'
import { drillLine } from './drill.ts'
import { printable } from './error.ts'
import { approvalLines, exileLines, type ForcedStatus } from './failover.ts'
import { fence, plain } from './paste.ts'
import { renderTable } from './table.ts'

/** One reading of the control plane: what it says, and when it was asked. */
export type Status = {
  readonly service: string
  /** ISO 8601, this host's clock; the times inside are the control plane's. */
  readonly asOf: string
  readonly counts: readonly { homeRegion: string; state: string; keys: number }[]
  /** Keys that are not ACTIVE, or those asked for. */
  readonly keys: readonly OwnershipRecord[]
  readonly openRuns: readonly Run[]
  readonly history: readonly LogRow[]
  /** Fences of whole regions that stand or were left half-done, as far as the control plane was told. */
  readonly fences: readonly LoggedFence[]
  /** Of each region whose configuration has one. */
  readonly leases: readonly RegionLease[]
  /** Who looked at the regions last, and how long ago by the control plane's clock. */
  readonly agents: readonly { readonly agent: string; readonly lastLookAgeMs: number }[]
  /** Regions that were failed over and are not back. */
  readonly exiles: readonly ForcedStatus[]
  /** Said of open forced failovers. */
  readonly approvals: readonly Approval[]
  /** Open forced failovers that stopped for them. */
  readonly consents: readonly AwaitedConsent[]
  /** The last rehearsal of each pair of regions. */
  readonly drills: readonly Drill[]
  /** Regions in whose quarantine something is undecided, or that could not be asked. */
  readonly late: readonly LateEvents[]
  readonly degraded: boolean
}

/** How many have to agree before the run goes on; how many have, the approvals say. */
export type AwaitedConsent = { readonly runId: string; readonly of: number }

/** `state` null: never granted. */
export type RegionLease = { readonly region: string; readonly onAgentOutage: 'stop' | 'keep'; readonly state: LeaseState | null }

/** Somebody has to look at it: nothing withholds it, and yet it is over. */
export function leaseIsMissing({ state }: RegionLease): boolean {
  return state === null || (state.withheldBy === null && state.leftMs - state.marginMs <= 0)
}

function leaseLine(lease: RegionLease): string {
  const { region, state } = lease
  const end = lease.onAgentOutage === 'stop' ? 'its boundary refuses writes' : 'it writes on, and its lease proves nothing'
  if (state === null || state.generation === 0) return `lease of ${region}: never granted, ${end} (homeregion agent)`
  const left = state.leftMs > 0 ? `over in ${formatMs(state.leftMs)} for certain, margin included` : `over, margin included`
  const withheld = state.withheldBy === null ? '' : `, withheld by run ${state.withheldBy}`
  const missing = leaseIsMissing(lease) ? `: NOT RENEWED, ${end}` : ''
  return `lease of ${region}: ${left}${withheld}${missing} (grant ${state.generation})`
}

function lateLines({ region, undecided, why, next }: LateEvents): readonly string[] {
  if (undecided === null) return [`late events in ${region}: not seen (${why ?? '?'})`]
  return [`late events in ${region}: ${undecided} undecided, kept and not applied`, `  next: ${next}`]
}

function agentLines(status: Status): readonly string[] {
  return status.agents.length === 0 ? ['no agent has ever looked'] : status.agents.map(agentLine)
}

function agentLine({ agent, lastLookAgeMs }: Status['agents'][number]): string {
  return `${agent}: last look ${formatMs(lastLookAgeMs)} ago`
}

const HISTORY_SHOWN = 12

export function statusText(status: Status, printer: Printer): string {
  const { style } = printer
  const headline = status.degraded ? style.yellow('attention') : style.green('ok')
  return [
    `${status.service}  ${headline}  (control plane's view, asked ${status.asOf})`,
    ...status.exiles.flatMap(forced => ['', ...exileLines(forced).map(printable)]),
    ...(status.late.length === 0 ? [] : ['', ...status.late.flatMap(lateLines).map(printable)]),
    ...status.openRuns.flatMap(run => ['', ...runLines(run, status).map(printable)]),
    ...(status.fences.length === 0 ? [] : ['', ...worstFence(status.fences).map(f => printable(fenceLine(f)))]),
    ...(status.leases.length === 0 ? [] : ['', ...[...status.leases.map(leaseLine), ...agentLines(status)].map(printable)]),
    ...(status.drills.length === 0 ? [] : ['', ...status.drills.map(d => printable(drillLine(d, Date.parse(status.asOf))))]),
    ...(status.keys.length === 0
      ? []
      : ['', renderTable(['key', 'home', 'epoch', 'state', 'moving to', 'changed', 'by'], status.keys.map(keyRow))]),
    ...(status.keys.some(k => k.state !== 'ACTIVE')
      ? ['Nobody can write a key that is DRAINING, FENCED or CATCH_UP (while DRAINING, what had begun finishes).']
      : []),
    ...(status.history.length === 0
      ? []
      : [
          '',
          'last changes',
          renderTable(
            ['key', 'seq', 'change', 'home', 'epoch', 'state', 'at', 'by'],
            status.history
              .slice(-HISTORY_SHOWN)
              .map(r => [showKey(r.key), String(r.seq), r.transition, r.homeRegion, String(r.epoch), r.state, r.changedAt, r.changedBy]),
          ),
        ]),
    '',
    renderTable(
      ['home', 'state', 'keys'],
      worstFirst(status.counts).map(c => [c.homeRegion, c.state, String(c.keys)]),
    ),
  ].join('\n')
}

export function statusJson(status: Status): string {
  return JSON.stringify({
    ...status,
    openRuns: status.openRuns.map(withoutText),
  })
}

/** A run without the text of its runbook, which `run show` has. */
export function withoutText(run: Run): Omit<Run, 'runbookText'> {
  return Object.fromEntries(Object.entries(run).filter(([name]) => name !== 'runbookText')) as Omit<Run, 'runbookText'>
}

/** For an incident channel: ASCII, narrow, worst first, and nothing in it that a chat would act on. */
export function statusPaste(status: Status): string {
  const lines = [
    `${status.service}: ${status.degraded ? 'ATTENTION' : 'ok'}  ${status.asOf}`,
    ...status.exiles.flatMap(exileLines),
    ...status.late.flatMap(lateLines),
    ...status.openRuns.flatMap(run => runLines(run, status)),
    ...worstFence(status.fences).map(fenceLine),
    ...status.leases.map(leaseLine),
    ...status.keys.map(
      r =>
        `${showKey(r.key)} ${r.state}${r.state === 'ACTIVE' ? '' : ' NOBODY CAN WRITE'} home ${r.homeRegion} epoch ${r.epoch}${r.targetRegion === null ? '' : ` -> ${r.targetRegion}`}`,
    ),
    ...worstFirst(status.counts).map(c => `${c.homeRegion}  ${c.state}  ${c.keys} keys`),
  ]
  return fence(lines.map(plain))
}

function keyRow(record: OwnershipRecord): readonly string[] {
  return [
    showKey(record.key),
    record.homeRegion,
    String(record.epoch),
    record.state,
    record.targetRegion ?? '-',
    record.changedAt,
    record.changedBy,
  ]
}

type Consent = { readonly text: string; readonly pending: boolean }

/** What the run stopped for, and whether it still has to. */
function consentOf(runId: string, { consents }: Status, said: readonly Approval[]): Consent | null {
  const awaited = consents.find(c => c.runId === runId)
  if (awaited === undefined) return null
  if (said.some(a => a.verdict === 'rejected')) return { text: 'rejected: it will hand nothing over', pending: false }
  const given = said.filter(a => a.verdict === 'approved')
  const of = given.some(a => a.breakGlass) ? 1 : awaited.of
  return given.length < of
    ? { text: `waits for approval: ${given.length} of ${of}`, pending: true }
    : { text: `approved: ${given.length} of ${of}`, pending: false }
}

function runLines(run: Run, status: Status): readonly string[] {
  const said = status.approvals.filter(a => a.runId === run.id)
  const consent = consentOf(run.id, status, said)
  const goesOn =
    consent?.pending === true ? `homeregion approve ${run.id}   (another login), then homeregion resume` : `homeregion resume ${run.id}`
  const open = run.moves.filter(m => m.outcome === null)
  const first = open[0] ?? run.moves[0]
  const who = run.holder === null ? 'nobody' : `${run.holder.user}@${run.holder.host} pid ${run.holder.pid}`
  const lease = run.leaseAlive
    ? `held by ${who} for ${formatMs(run.leaseLeftMs)} more`
    : `NOT RUNNING: last held by ${who}, lease over since ${formatMs(-run.leaseLeftMs)}`
  return [
    `run ${run.id} ${run.state} ${run.runbookName}: ${first === undefined ? 'no key' : showKey(first.key)}${open.length > 1 ? ` +${open.length - 1} more` : ''} -> ${first?.target ?? '?'}`,
    `  since ${run.startedAt} by ${run.startedBy}; ${lease}`,
    ...(consent === null ? [] : [`  ${consent.text}`]),
    ...approvalLines(said),
    ...(run.leaseAlive && consent?.pending !== true ? [] : [`  next: ${goesOn}`, `   or: homeregion abort ${run.id}`]),
  ]
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

function fenceLine({ region, fence, event, by, at, reason }: LoggedFence): string {
  const line = `fence ${fence} of ${region}: ${FENCE_WORDS[event]}, by ${by} at ${at}${reason === null ? '' : ` (${reason})`}`
  return event === 'applied' ? line : `${line}; next: homeregion fence status ${region}`
}

function worstFence(fences: Status['fences']): Status['fences'] {
  const rank = (event: FenceEvent) => Object.keys(FENCE_WORDS).indexOf(event)
  return [...fences].sort((a, b) => rank(a.event) - rank(b.event))
}

function worstFirst(counts: Status['counts']): Status['counts'] {
  // By code unit: `localeCompare` loads the collation tables, which cost more than everything else that is printed here.
  const byName = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0)
  return [...counts].sort((a, b) => Number(a.state === 'ACTIVE') - Number(b.state === 'ACTIVE') || byName(a.homeRegion, b.homeRegion))
}
