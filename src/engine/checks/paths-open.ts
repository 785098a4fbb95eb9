import type { BoundaryRow, EndpointProbe } from '../../domain/boundary.ts'
import type { PlannedMove } from '../../domain/plan.ts'
import type { CheckSubject, Engine } from '../context.ts'
import {
  finding,
  isBoundaryRefusal,
  lookAtPaths,
  merged,
  misdeclared,
  type PathFindings,
  type PathLook,
  probeTexts,
  READ_ONLY,
  rowText,
  settled,
  standbyName,
} from './paths.ts'

/**
 * Before the drain: every endpoint is what it is declared as and answers as the primary does, so that its refusal will mean something later; and
 * no standby is away or so far behind that the fence would have to wait for it.
 */
export async function openPaths(
  engine: Engine,
  subject: CheckSubject,
  move: PlannedMove,
  first: PathLook,
  row: BoundaryRow | null,
): Promise<PathFindings> {
  const { findings } = await settled(
    engine,
    first,
    async () => await lookAtPaths(engine, subject, move.source, move),
    look => merged([...look.endpoints.map(e => endpointFindings(e, move.source, row)), standbyFindings(look)]),
  )
  return findings
}

function endpointFindings(endpoint: EndpointProbe, region: string, row: BoundaryRow | null): PathFindings {
  const name = `endpoint ${endpoint.endpoint}`
  if (endpoint.unseen !== null) return finding('problems', `${name}: ${endpoint.unseen}`)
  const wrong = misdeclared(endpoint, region)
  if (wrong.length > 0) return finding('problems', ...wrong)
  return endpoint.kind === 'pooler' ? poolerFindings(endpoint, row) : standbyEndpointFindings(endpoint, row)
}

function poolerFindings(endpoint: EndpointProbe, row: BoundaryRow | null): PathFindings {
  const name = `endpoint ${endpoint.endpoint}`
  if (!same(endpoint.row, row))
    return finding('problems', `${name} ${rowText(endpoint.row)}, the primary ${rowText(row)}: does it lead to another server?`)
  // A key whose drain was already begun (resume) refuses its own writers.
  const strange = endpoint.probes.filter(p => p.outcome === 'refused' && !(isBoundaryRefusal(p) && row?.writable !== true))
  if (strange.length > 0) return finding('problems', `${name} refuses before any fence: ${probeTexts(strange)}`)
  const undecided = endpoint.probes.filter(p => p.outcome === 'unknown')
  if (undecided.length > 0) return finding('unseen', `${name}: ${probeTexts(undecided)}`)
  return finding('proved', `${name} answers as the primary`)
}

function standbyEndpointFindings(endpoint: EndpointProbe, row: BoundaryRow | null): PathFindings {
  const name = `endpoint ${endpoint.endpoint}`
  if (endpoint.inRecovery === false)
    return finding('problems', `${name} is declared as a standby and is not in recovery: it was promoted, or is a primary`)
  const undecided = endpoint.probes.filter(p => p.sqlstate !== READ_ONLY)
  if (undecided.length > 0) return finding('unseen', `${name}: ${probeTexts(undecided)}`)
  if (!same(endpoint.row, row)) return finding('behind', `${name} ${rowText(endpoint.row)}, the primary ${rowText(row)}`)
  return finding('proved', `${name} is in recovery`)
}

function same(there: BoundaryRow | null, here: BoundaryRow | null): boolean {
  return there?.epoch === here?.epoch && there?.state === here?.state && there?.homeRegion === here?.homeRegion
}

function standbyFindings({ report }: PathLook): PathFindings {
  const late = report.standbys.filter(s => !s.flushed)
  const away = late.filter(s => s.state === 'disconnected')
  const dark = late.filter(s => s.state !== 'disconnected' && s.flushLsn === null)
  return {
    problems: [
      ...away.map(
        s =>
          `the standby of replication slot ${s.name} is away, and could be promoted without the fence: connect it, drop the slot if it is gone for good, or accept it (acceptedWriters, kind: standby-slot)`,
      ),
      ...dark.map(
        s =>
          `what standby ${standbyName(s)} has flushed cannot be seen: grant pg_read_all_stats to homeregion_owner (homeregion init does)`,
      ),
    ],
    unseen: [],
    behind: late
      .filter(s => s.state !== 'disconnected' && s.flushLsn !== null)
      .map(s => `standby ${standbyName(s)} has flushed ${s.flushLsn ?? '?'} of ${report.lsn}`),
    proved: [],
  }
}
