import type { BoundaryRow, EndpointProbe, ProbeResult, Standby, StandbyReport } from '../../domain/boundary.ts'
import { SQLSTATE } from '../../domain/boundary.ts'
import type { CheckSubject, Engine } from '../context.ts'

/** What is said of a region's other ways to its data: its endpoints, and the standbys that could be promoted. */
export type PathFindings = {
  /** What gets around the fence, or would make its proof worth nothing; each is a fail. */
  readonly problems: readonly string[]
  /** What could not be seen. */
  readonly unseen: readonly string[]
  /** What is on its way and needs only time. */
  readonly behind: readonly string[]
  /** One line for each that is as it should be. */
  readonly proved: readonly string[]
}

export type PathLook = {
  readonly endpoints: readonly EndpointProbe[]
  readonly report: StandbyReport
  /** Standbys that had not the WAL asked for when they were last seen, and are not there any more. */
  readonly gone: readonly string[]
}

/** Refusals of a standby, whatever is written. */
export const READ_ONLY = '25006'

/**
 * Looks once at all paths of a region. The LSN asked of the standbys is the one of the first look that had `remember` set: on a busy primary they
 * would run after a moving mark for ever.
 */
export async function lookAtPaths(
  engine: Engine,
  subject: CheckSubject,
  region: string,
  key: { readonly key: string; readonly epoch: number | null },
): Promise<PathLook> {
  const { memory } = subject
  const [lsnName, behindName] = [`standby-lsn:${region}`, `standbys-behind:${region}`]
  const asked = memory.get(lsnName)
  const [endpoints, report] = await Promise.all([
    engine.region(region).probeEndpoints(key.key, key.epoch),
    engine.region(region).standbys(typeof asked === 'string' ? asked : null),
  ])
  // Looks of one check do not overlap, but an earlier one's mark stands nearer to the fence.
  if (!memory.has(lsnName)) memory.set(lsnName, report.lsn)
  const here = new Set(report.standbys.map(standbyName))
  const before = (memory.get(behindName) as readonly string[] | undefined) ?? []
  const gone = before.filter(name => !here.has(name))
  memory.set(behindName, [...gone, ...report.standbys.filter(s => !s.flushed).map(standbyName)])
  return { endpoints, report, gone }
}

// Streaming is behind by a disk write and a round trip. What takes longer is worth a gate's own pauses, which grow.
const SETTLE_MS = 100
const PAUSE_MS = 4

/** Looks again, for a moment, while nothing is wrong but the time a change takes to arrive. */
export async function settled(
  engine: Engine,
  first: PathLook,
  again: () => Promise<PathLook>,
  judge: (look: PathLook) => PathFindings,
): Promise<{ readonly findings: PathFindings; readonly refusals: number }> {
  const until = engine.clock.monotonicMs() + SETTLE_MS
  let look = first
  let findings = judge(look)
  let refusals = refusalsIn(look)
  while (
    findings.behind.length > 0 &&
    findings.problems.length === 0 &&
    findings.unseen.length === 0 &&
    engine.clock.monotonicMs() < until
  ) {
    await engine.clock.sleep(PAUSE_MS)
    look = await again()
    findings = judge(look)
    refusals += refusalsIn(look)
  }
  return { findings, refusals }
}

export function merged(parts: readonly PathFindings[]): PathFindings {
  return {
    problems: parts.flatMap(p => p.problems),
    unseen: parts.flatMap(p => p.unseen),
    behind: parts.flatMap(p => p.behind),
    proved: parts.flatMap(p => p.proved),
  }
}

export function finding(kind: keyof PathFindings, ...texts: readonly string[]): PathFindings {
  return { problems: [], unseen: [], behind: [], proved: [], [kind]: texts }
}

/** What is wrong with an endpoint whatever the key's state: it is another region's, or not what it was declared as. */
export function misdeclared(endpoint: EndpointProbe, region: string): readonly string[] {
  const name = `endpoint ${endpoint.endpoint}`
  if (endpoint.unseen !== null) return []
  if (endpoint.kind === 'pooler' && endpoint.inRecovery === true)
    return [`${name} is declared as a pooler and leads to a standby (in recovery): declare it as kind: standby, or point it to the primary`]
  // A pooler that hides the writer may hide its region with it.
  const hidden = endpoint.kind === 'pooler' ? hiddenWriters(endpoint.probes) : []
  if (hidden.length > 0) return hidden.map(text => `${name} ${text}`)
  if (endpoint.region === null) return [`${name} leads to a database without this boundary`]
  if (endpoint.region !== region) return [`${name} leads to the database of ${endpoint.region}`]
  return []
}

/** The server took the session for somebody else than the writer who logged in: what it refuses then says nothing about the writer. */
export function hiddenWriters(probes: readonly ProbeResult[]): readonly string[] {
  const pairs = probes.flatMap(p =>
    p.role === null || p.role === p.writer
      ? []
      : [`gives ${p.writer} a session of ${p.role}: it hides the role, so what it refuses says nothing about ${p.writer}`],
  )
  return [...new Set(pairs)]
}

export function probeText(probe: ProbeResult): string {
  return `${probe.writer} on ${probe.table}: ${probe.message}`
}

/** Once each, however many tables say the same. */
export function probeTexts(probes: readonly ProbeResult[]): string {
  return [...new Set(probes.map(p => `${p.writer}: ${p.message}`))].join('; ')
}

export function isBoundaryRefusal({ outcome, sqlstate }: ProbeResult): boolean {
  return outcome === 'refused' && (sqlstate ?? '').startsWith('HR')
}

export function rowText(row: BoundaryRow | null): string {
  return row === null ? 'does not know the key' : `shows ${row.state} at ${row.homeRegion}, epoch ${row.epoch}`
}

export function standbyName(standby: Standby): string {
  return standby.address === null ? standby.name : `${standby.name} at ${standby.address}`
}

/** How many of our own probes the primary's counters of refused writes have counted. */
function refusalsIn(look: PathLook): number {
  const counted: readonly string[] = [SQLSTATE.notHome, SQLSTATE.staleEpoch, SQLSTATE.unknownKey]
  return look.endpoints.flatMap(e => e.probes).filter(p => counted.includes(p.sqlstate ?? '')).length
}
