import type { Digest } from '../../domain/boundary.ts'
import { fail, pass, unknown } from '../../domain/evidence.ts'
import { type CheckHandler, keyOf } from '../context.ts'

export const barrierApplied: CheckHandler = async (engine, subject) => {
  const { move, barrierEventId } = keyOf(subject)
  const observer = `${move.target} inbox`
  const required = "the fence's barrier in the inbox"
  if (barrierEventId === null) return unknown(observer, required, 'no barrier is known for the fence')
  const there = await engine.region(move.target).inboxHas(barrierEventId)
  return there ? pass(observer, required, 'applied', { barrierEventId }) : fail(observer, required, 'not applied yet', { barrierEventId })
}

export const versionsEqual: CheckHandler = async (engine, subject) => {
  const { move } = keyOf(subject)
  const [source, target] = await Promise.all([engine.region(move.source).digests(move.key), engine.region(move.target).digests(move.key)])
  const observer = `${move.source} and ${move.target} databases`
  const required = 'equal aggregate versions'
  if (source.versions.length === 0) return unknown(observer, required, 'no guarded table has versions configured')
  const differing = source.versions.filter(s => target.versions.find(t => t.table === s.table)?.hash !== s.hash)
  const facts = { source: source.versions.map(d => ({ ...d })), target: target.versions.map(d => ({ ...d })) }
  if (differing.length === 0) return pass(observer, required, source.versions.map(show).join(', '), facts)
  return fail(
    observer,
    required,
    differing.map(s => `source ${show(s)}, target ${show(target.versions.find(t => t.table === s.table))}`).join('; '),
    facts,
  )
}

export const idempotencyCarried: CheckHandler = async (engine, subject) => {
  const { move } = keyOf(subject)
  const [source, target] = await Promise.all([engine.region(move.source).digests(move.key), engine.region(move.target).digests(move.key)])
  const observer = `${move.source} and ${move.target} databases`
  const required = 'equal sets of idempotency records'
  if (source.idempotency === null || target.idempotency === null) return unknown(observer, required, 'no idempotency table is configured')
  if (source.idempotency.hash === target.idempotency.hash) return pass(observer, required, `${source.idempotency.rows} records in both`)
  return fail(observer, required, `source ${source.idempotency.rows} records, target ${target.idempotency.rows}`)
}

export const targetAcceptsWrite: CheckHandler = async (engine, subject) => {
  const { move } = keyOf(subject)
  const probes = await engine.region(move.target).probeWrites(move.key, move.epoch + 1, 'read committed')
  const observer = `${move.target} database, as its writers`
  const required = `every writer admitted under epoch ${move.epoch + 1}`
  const refused = probes.filter(p => p.outcome !== 'admitted')
  if (probes.length === 0) return unknown(observer, required, 'no writer is declared: nothing was probed')
  if (refused.length === 0) return pass(observer, required, `${probes.length} of ${probes.length} writes admitted, rolled back`)
  const texts = refused.map(p => `${p.writer} on ${p.table}: ${p.message}`).join('; ')
  return refused.some(p => p.outcome === 'refused') ? fail(observer, required, texts) : unknown(observer, required, texts)
}

function show(digest: Digest | undefined): string {
  if (digest === undefined) return 'nothing'
  return `${digest.table} ${digest.rows} rows${digest.highest === null ? '' : `, highest version ${digest.highest}`}`
}
