import type { Approval } from '../../domain/approval.ts'
import type { UnfinishedDrill } from '../../domain/drill.ts'
import type { Drill } from '../../domain/failover.ts'
import type { Run } from '../../domain/journal.ts'
import { showKey } from '../../domain/key.ts'
import { byCodeUnit } from '../../domain/order.ts'
import type { OwnershipRecord } from '../../domain/ownership.ts'
import type { LogRow } from '../../domain/ports.ts'
import type { Printer } from '../context.ts'
import type { LateEvents } from '../late-events.ts'
import { drillLine } from './drill.ts'
import { printable } from './error.ts'
import { exileLines, type ForcedStatus } from './exile.ts'
import { fence, plain } from './paste.ts'
import { NOBODY_LOOKS, regionLines, regionReasons, type StatusRegion } from './regions-seen.ts'
import {
  type AwaitedConsent,
  drillLines,
  fenceLines,
  lateLines,
  leaseIsMissing,
  leaseLine,
  type RegionLease,
  runLines,
  type StandingFence,
  worstFence,
} from './status-lines.ts'
import { fittedTable, renderTable } from './table.ts'
import { counted } from './words.ts'
import { fittedLines } from './wrapped.ts'

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
  readonly fences: readonly StandingFence[]
  /** Of each region whose configuration has one. */
  readonly leases: readonly RegionLease[]
  /** How the agents see each region. */
  readonly regions: readonly StatusRegion[]
  readonly darkAfterMs: number
  /** Regions that were failed over and are not back. */
  readonly exiles: readonly ForcedStatus[]
  /** Said of open forced failovers. */
  readonly approvals: readonly Approval[]
  /** Open forced failovers that stopped for them. */
  readonly consents: readonly AwaitedConsent[]
  /** The last rehearsal of each pair of regions. */
  readonly drills: readonly Drill[]
  /** Rehearsals that were begun and did not end. */
  readonly unfinished: readonly UnfinishedDrill[]
  /** Regions in whose quarantine something is undecided, or that could not be asked. */
  readonly late: readonly LateEvents[]
  readonly degraded: boolean
}

/** Why somebody has to look, the worst first; empty: nobody has to. */
export function reasonsOf(status: Omit<Status, 'degraded'>): readonly string[] {
  const { openRuns, keys, fences, leases, exiles, late, regions, unfinished } = status
  const isDark = (region: string) => regions.some(r => r.region === region && r.state === 'dark')
  const found = [
    ...regions.filter(r => r.state === 'dark').flatMap(regionReasons),
    ...exiles.map(({ exile }) => `${exile.region} is in exile`),
    ...(openRuns.length > 0 ? [`${counted(openRuns.length, 'run')} not over`] : []),
    ...(keys.some(k => k.state !== 'ACTIVE') ? ['keys that nobody can write'] : []),
    ...fences.filter(f => f.event !== 'applied' || f.stops > 0).map(f => `fence ${f.fence} of ${f.region}`),
    ...late.filter(l => l.undecided !== null).map(l => `late events in ${l.region}`),
    ...leases.filter(leaseIsMissing).map(l => `lease of ${l.region} is not renewed`),
    ...regions.filter(r => r.state !== 'dark').flatMap(regionReasons),
    ...late.filter(l => l.undecided === null && !isDark(l.region)).map(l => `whether ${l.region} has late events is not known`),
    ...unfinished.map(d => `a drill ${d.home} -> ${d.target} has not ended`),
  ]
  return [...new Set(found)]
}

const HISTORY_SHOWN = 12

export function statusText(status: Status, printer: Printer): string {
  const { style } = printer
  const reasons = reasonsOf(status)
  const headline = reasons.length > 0 ? style.yellow('attention') : style.green('ok')
  const block = (lines: readonly string[], before = ['']) =>
    lines.length === 0 ? [] : [...before, ...lines.map(line => fittedLines(printer, printable(line)))]
  return [
    `${status.service}  ${headline}  (control plane's view, asked ${status.asOf})`,
    ...block([...(reasons.length === 0 ? [] : [`  ${reasons.join('; ')}`]), ...(nobodyLooks(status) ? [`  ${NOBODY_LOOKS}`] : [])], []),
    ...block(regionLines(status.regions, status.darkAfterMs)),
    ...status.exiles.flatMap(forced => block(exileLines(forced))),
    ...block(status.late.flatMap(lateLines)),
    ...status.openRuns.flatMap(run => block(linesOf(run, status))),
    ...block(worstFence(status.fences).flatMap(fenceLines)),
    ...block(status.leases.map(leaseLine)),
    ...block([...status.unfinished.flatMap(drillLines), ...status.drills.map(d => drillLine(d, Date.parse(status.asOf)))]),
    ...(status.keys.length === 0
      ? []
      : [
          '',
          fittedTable(
            printer,
            ['key', 'home', 'epoch', 'state', 'moving to', 'changed', 'by'],
            status.keys.map(k => keyRow(k, status)),
            ['by', 'changed'],
          ),
        ]),
    ...(status.keys.some(k => k.state !== 'ACTIVE')
      ? block(['Nobody can write a key that is DRAINING, FENCED or CATCH_UP (while DRAINING, what had begun finishes).'], [])
      : []),
    ...(status.history.length === 0
      ? []
      : [
          '',
          'last changes',
          fittedTable(
            printer,
            ['key', 'seq', 'change', 'home', 'epoch', 'state', 'at', 'by'],
            status.history
              .slice(-HISTORY_SHOWN)
              .map(r => [showKey(r.key), String(r.seq), r.transition, r.homeRegion, String(r.epoch), r.state, r.changedAt, r.changedBy]),
            ['by', 'seq', 'at'],
          ),
        ]),
    '',
    renderTable(
      ['home', 'state', 'keys'],
      worstFirst(status.counts).map(c => [c.homeRegion, stateText(c, status), String(c.keys)]),
    ),
    ...block(stayedLines(status), []),
  ].join('\n')
}

export function statusJson(status: Status): string {
  return JSON.stringify({
    ...status,
    reasons: reasonsOf(status),
    openRuns: status.openRuns.map(withoutText),
  })
}

/** A run without the text of its runbook, which `run show` has. */
export function withoutText(run: Run): Omit<Run, 'runbookText'> {
  return Object.fromEntries(Object.entries(run).filter(([name]) => name !== 'runbookText')) as Omit<Run, 'runbookText'>
}

/** For an incident channel: ASCII, narrow, worst first, and nothing in it that a chat would act on. */
export function statusPaste(status: Status): string {
  const reasons = reasonsOf(status)
  const lines = [
    `${status.service}: ${reasons.length > 0 ? 'ATTENTION' : 'ok'}  ${status.asOf}`,
    ...(reasons.length === 0 ? [] : [`  ${reasons.join('; ')}`]),
    ...(nobodyLooks(status) ? [`  ${NOBODY_LOOKS}`] : []),
    ...regionLines(status.regions, status.darkAfterMs),
    ...status.exiles.flatMap(exileLines),
    ...status.late.flatMap(lateLines),
    ...status.openRuns.flatMap(run => linesOf(run, status)),
    ...worstFence(status.fences).flatMap(fenceLines),
    ...worstFirst(status.counts).map(c => `${c.homeRegion}  ${stateText(c, status)}  ${counted(c.keys, 'key')}`),
    ...stayedLines(status),
    ...status.leases.map(leaseLine),
    ...status.unfinished.flatMap(drillLines),
    ...status.keys.map(
      r =>
        `${showKey(r.key)} ${stateText(r, status)}${r.state === 'ACTIVE' ? '' : ' NOBODY CAN WRITE'} home ${r.homeRegion} epoch ${r.epoch}${r.targetRegion === null ? '' : ` -> ${r.targetRegion}`}`,
    ),
  ]
  return fence(lines.map(plain))
}

function linesOf(run: Run, { consents, approvals, exiles }: Status): readonly string[] {
  const awaited = consents.find(c => c.runId === run.id)
  // Once it is committed they stand with its exile.
  const committed = exiles.some(({ exile }) => exile.runIds.includes(run.id))
  const said = committed ? [] : approvals.filter(a => a.runId === run.id)
  return runLines(run, committed ? undefined : awaited, said)
}

function nobodyLooks({ regions }: Status): boolean {
  return regions.length > 0 && regions.every(r => r.state === 'never-looked')
}

function isExiled({ exiles }: Status, region: string): boolean {
  return exiles.some(({ exile }) => exile.region === region)
}

/** What was not handed over stays recorded as the region's own, and is not to be taken for a key that is written there. */
function stateText({ homeRegion, state }: { readonly homeRegion: string; readonly state: string }, status: Status): string {
  return isExiled(status, homeRegion) ? `${state}, in exile` : state
}

function stayedLines(status: Status): readonly string[] {
  return status.exiles.flatMap(({ exile: { region, done } }) => {
    if (!status.counts.some(c => c.homeRegion === region && c.keys > 0)) return []
    // By whoever closed it: an agent does before anybody types.
    const isFenced = done.includes('fenced') || status.fences.some(f => f.region === region && f.event === 'applied')
    const writes = isFenced ? 'it is fenced, so that nobody can write them' : 'whether it writes them is not known'
    return [`in exile: nobody else has these keys of ${region}; ${writes}`]
  })
}

function keyRow(record: OwnershipRecord, status: Status): readonly string[] {
  return [
    showKey(record.key),
    record.homeRegion,
    String(record.epoch),
    stateText(record, status),
    record.targetRegion ?? '-',
    record.changedAt,
    record.changedBy,
  ]
}

function worstFirst(counts: Status['counts']): Status['counts'] {
  return [...counts].sort((a, b) => Number(a.state === 'ACTIVE') - Number(b.state === 'ACTIVE') || byCodeUnit(a.homeRegion, b.homeRegion))
}
