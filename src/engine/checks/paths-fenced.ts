import type { BoundaryRow, EndpointProbe } from '../../domain/boundary.ts'
import type { Engine, KeySubject } from '../context.ts'
import {
  finding,
  isBoundaryRefusal,
  lookAtPaths,
  merged,
  misdeclared,
  type PathFindings,
  type PathLook,
  probeText,
  probeTexts,
  READ_ONLY,
  rowText,
  settled,
  standbyName,
} from './paths.ts'

/** What the primary showed of the fence, by which its other paths are judged. */
export type FenceSeen = {
  readonly row: BoundaryRow
  /** Barrier of the fence in force; null after activation, when the key's home is elsewhere. */
  readonly barrier: string | null
  /** SQLSTATEs of proven fences of the whole region, which answer before the boundary does. */
  readonly refusals: readonly string[]
}

/**
 * The fence holds on every other path too: each endpoint refuses each writer, a standby shows the fence as well, and every streaming standby has
 * it on its disk, so that no promotion takes writes without it.
 */
export async function fencedPaths(
  engine: Engine,
  subject: KeySubject,
  first: PathLook,
  seen: FenceSeen,
): Promise<{ readonly findings: PathFindings; readonly refusals: number }> {
  const { move } = subject
  return await settled(
    engine,
    first,
    async () => await lookAtPaths(engine, subject, move.source, move),
    look => merged([...look.endpoints.map(e => endpointFindings(e, move, seen)), standbyFindings(look)]),
  )
}

type Move = KeySubject['move']

function endpointFindings(endpoint: EndpointProbe, move: Move, seen: FenceSeen): PathFindings {
  const name = `endpoint ${endpoint.endpoint}`
  const admitted = endpoint.probes.filter(p => p.outcome === 'admitted')
  if (admitted.length > 0)
    return finding(
      'problems',
      `${name} ADMITTED: ${admitted.map(p => `${p.writer} wrote ${p.table}`).join('; ')} (${endpoint.inRecovery === false && endpoint.kind === 'standby' ? 'it was promoted, and ' : 'it '}${rowText(endpoint.row)})`,
    )
  const wrong = misdeclared(endpoint, move.source)
  if (wrong.length > 0) return finding('problems', ...wrong)
  const fenced = endpoint.probes.filter(p => seen.refusals.includes(p.sqlstate ?? ''))
  if (endpoint.kind === 'pooler' && endpoint.probes.length > 0 && fenced.length === endpoint.probes.length)
    return finding('proved', `${name} refuses every login`)
  if (endpoint.unseen !== null) return finding('unseen', `${name}: ${endpoint.unseen}`)
  return endpoint.kind === 'pooler' ? poolerFindings(endpoint, move, seen) : standbyEndpointFindings(endpoint, move, seen)
}

function poolerFindings(endpoint: EndpointProbe, move: Move, seen: FenceSeen): PathFindings {
  const name = `endpoint ${endpoint.endpoint}`
  const undecided = endpoint.probes.filter(p => !isBoundaryRefusal(p) && !seen.refusals.includes(p.sqlstate ?? ''))
  if (undecided.length > 0) return finding('unseen', `${name}: ${undecided.map(probeText).join('; ')}`)
  // It is read through the same sessions that were refused: another server there, which happens to refuse, is not this fence.
  if (!shows(endpoint.row, move, seen))
    return finding('problems', `${name} refuses, but ${rowText(endpoint.row)}: does it lead to another server?`)
  return finding('proved', `${name} refuses every writer`)
}

function standbyEndpointFindings(endpoint: EndpointProbe, move: Move, seen: FenceSeen): PathFindings {
  const name = `endpoint ${endpoint.endpoint}`
  const carries = shows(endpoint.row, move, seen)
  if (endpoint.inRecovery === false) {
    // Before activation nothing may rest on a region whose primary is no longer certain. After it only the refusals count.
    if (seen.barrier === null && carries && endpoint.probes.every(isBoundaryRefusal))
      return finding('proved', `${name} was promoted and refuses every writer`)
    return finding('problems', `${name} was promoted (not in recovery): it ${rowText(endpoint.row)}${carries ? ', fenced there too' : ''}`)
  }
  const undecided = endpoint.probes.filter(p => p.sqlstate !== READ_ONLY && !seen.refusals.includes(p.sqlstate ?? ''))
  if (undecided.length > 0) return finding('unseen', `${name}: ${probeTexts(undecided)}`)
  if (!carries) return finding('behind', `${name} ${rowText(endpoint.row)}, not the fence yet`)
  return finding('proved', `${name} is in recovery and shows the fence`)
}

/** The fence of this run while it is in force; afterwards anything by which the source is not home. */
function shows(row: BoundaryRow | null, move: Move, seen: FenceSeen): boolean {
  if (row === null || row.writable) return false
  if (seen.barrier !== null) return row.state === 'FENCED' && row.epoch === seen.row.epoch && row.barrierEventId === seen.barrier
  return row.epoch >= move.epoch && (row.state === 'FENCED' || row.homeRegion !== move.source)
}

function standbyFindings({ report, gone }: PathLook): PathFindings {
  const behind = report.standbys.filter(s => !s.flushed)
  const away = behind.filter(s => s.state === 'disconnected').map(s => s.name)
  const dark = behind.filter(s => s.state !== 'disconnected' && s.flushLsn === null).map(standbyName)
  const late = behind.filter(s => s.state !== 'disconnected' && s.flushLsn !== null)
  const flushed = report.standbys.filter(s => s.flushed).map(standbyName)
  return {
    problems: [],
    unseen: [
      ...gone.map(name => `standby ${name} went away before it had flushed the fence`),
      ...away.map(name => `standby of slot ${name} is away: it has not flushed the fence`),
      ...dark.map(name => `what standby ${name} has flushed cannot be seen`),
    ],
    behind: late.map(s => `standby ${standbyName(s)} has flushed ${s.flushLsn ?? '?'}, the fence is at ${report.lsn}`),
    proved: flushed.length === 0 ? [] : [`flushed by standby ${flushed.join(', ')}`],
  }
}
