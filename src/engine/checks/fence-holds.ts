import type { ProbeResult } from '../../domain/boundary.ts'
import { fail, pass, unknown } from '../../domain/evidence.ts'
import { type CheckHandler, keyOf } from '../context.ts'
import { lookAtPaths } from './paths.ts'
import { fencedPaths } from './paths-fenced.ts'
import { standingFences } from './standing-fences.ts'

/**
 * The proof of the fence: as every declared writer, at both isolation levels, a real write is refused with our SQLSTATE; the boundary
 * row is read back; the position does not move between two reads; and every other path to the data is fenced as well (paths-fenced.ts). What
 * is asked of the paths is asked beside the rest, so that a region without any waits for nothing more. After activation (while watching)
 * the key's home is elsewhere and only the refusals count.
 */
export const fenceHolds: CheckHandler = async (engine, subject) => {
  const { move } = keyOf(subject)
  const source = engine.region(move.source)
  const barrier = subject.barrierEventId
  const [row, facts, committed, repeatable, before, standing, paths] = await Promise.all([
    source.read(move.key),
    // A probe meets one trigger of a table; the catalogue says whether all of them still stand.
    source.facts(),
    source.probeWrites(move.key, move.epoch, 'read committed'),
    source.probeWrites(move.key, move.epoch, 'repeatable read'),
    barrier === null ? null : source.position(move.key, barrier),
    standingFences(engine, subject, move.source),
    lookAtPaths(engine, subject, move.source, move),
  ])
  const observer = `${move.source} database, as its writers`
  const required = 'every write refused by the boundary on every path, position unmoved'
  const probes = [...committed, ...repeatable]
  const seen = { sqlstates: [...new Set(probes.map(p => p.sqlstate ?? 'none'))], probes: probes.length, state: row?.state ?? null }
  const admitted = probes.filter(p => p.outcome === 'admitted')
  if (admitted.length > 0)
    return fail(observer, required, `ADMITTED: ${admitted.map(p => `${p.writer} wrote ${p.table} (${p.isolation})`).join('; ')}`, seen)
  if (standing.problems.length > 0) return fail(observer, required, standing.problems.join('; '), seen)
  if (facts.guardProblems.length > 0) return fail(observer, required, `the guard does not stand: ${facts.guardProblems.join('; ')}`, seen)
  if (row === null) return unknown(observer, required, 'the boundary does not know the key', seen)
  if (row.writable) return fail(observer, required, `the boundary lists the key as writable (${row.state}, epoch ${row.epoch})`, seen)
  // A write that another proven fence refuses first does not reach the boundary.
  const unseen = probes.filter(p => !standing.refusals.includes(p.sqlstate ?? '') && !refusedByBoundary(p))
  if (probes.length === 0) return unknown(observer, required, 'no writer is declared: nothing was probed', seen)
  if (standing.unseen.length > 0) return unknown(observer, required, standing.unseen.join('; '), seen)
  if (unseen.length > 0) return unknown(observer, required, unseen.map(p => `${p.writer} on ${p.table}: ${p.message}`).join('; '), seen)
  const inForce = barrier !== null && row.homeRegion === move.source && row.state === 'FENCED'
  if (inForce) {
    const first = subject.memory.get('position') ?? JSON.stringify(before?.versions)
    subject.memory.set('position', first)
    if (JSON.stringify(before?.versions) !== first) return fail(observer, required, 'the position moved after the fence', seen)
  }
  const ways = await fencedPaths(engine, { ...subject, move }, paths, {
    row,
    barrier: inForce ? barrier : null,
    refusals: standing.refusals,
  })
  const { problems, unseen: dark, behind, proved } = ways.findings
  const all = { ...seen, probes: probes.length + ways.refusals, paths: [...problems, ...dark, ...behind, ...proved] }
  if (problems.length > 0) return fail(observer, required, problems.join('; '), all)
  // What is behind arrives by itself: the gate asks again until its deadline.
  if (dark.length + behind.length > 0) return unknown(observer, required, [...dark, ...behind].join('; '), all)
  return pass(
    observer,
    required,
    `${probes.length} of ${probes.length} writes refused (${seen.sqlstates.join(', ')}), ${row.state} at epoch ${row.epoch}${[...standing.names.map(name => `fence ${name} proved`), ...proved].map(text => `, ${text}`).join('')}`,
    all,
  )
}

function refusedByBoundary({ outcome, sqlstate }: ProbeResult): boolean {
  return outcome === 'refused' && (sqlstate ?? '').startsWith('HR')
}
