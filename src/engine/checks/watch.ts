import type { Rejections } from '../../domain/boundary.ts'
import { formatMs } from '../../domain/duration.ts'
import { fail, type Observation, pass } from '../../domain/evidence.ts'
import type { CheckHandler, CheckSubject, Engine } from '../context.ts'
import { sourcesOf } from './regions.ts'

/** Under this name the watch remembers how many refused writes it made itself. */
export const OWN_PROBES = 'own-probes'

/** Stale requests refused at the source prove that the fence works. They have to end: what still sends them after `settleWithin` is a bug somewhere. */
export const staleRejections: CheckHandler = async (engine, subject, use) => {
  // Regions that share a database share its counters.
  const sources = engine.policy.shared ? sourcesOf(subject).slice(0, 1) : sourcesOf(subject)
  const counts = await Promise.all(sources.map(name => engine.region(name).rejections()))
  // Our own probes of the fence are refused and counted as well; the watch says how many it made.
  const total = counts.reduce((sum, c) => sum + refusals(c), 0) - Number(subject.memory.get(OWN_PROBES) ?? 0)
  return settled(engine, subject, 'rejections', total, use.parameters['settleWithin'] ?? 0, n => `${n} refused so far`)
}

/** Events of the old epoch that still reach the target after activation: those it had not applied before are kept in quarantine. */
export const delayedEvents: CheckHandler = async (engine, subject, use) => {
  const counts = await Promise.all(subject.moves.map(m => engine.region(m.target).delayedEvents(m.key, m.epoch + 1)))
  const applied = counts.reduce((sum, c) => sum + c.count, 0)
  const quarantined = counts.reduce((sum, c) => sum + c.quarantined, 0)
  const show = () =>
    `${applied} events of the old epoch applied in all${quarantined === 0 ? '' : `, ${quarantined} came too late and are in quarantine`}`
  const seen = settled(engine, subject, 'delayed', applied + quarantined, use.parameters['settleWithin'] ?? 0, show)
  return { ...seen, facts: { ...seen.facts, quarantined } }
}

function refusals(counts: Rejections): number {
  return counts.notHome + counts.draining + counts.fenced + counts.staleEpoch
}

type Seen = { readonly value: number; readonly changedAt: number }

/** Passes while the figure still has time to settle or has stopped moving; fails when it still moves after `withinMs`. */
function settled(
  engine: Engine,
  subject: CheckSubject,
  name: string,
  value: number,
  withinMs: number,
  show: (n: number) => string,
): Observation {
  const now = engine.clock.monotonicMs()
  const last = subject.memory.get(name) as Seen | undefined
  const seen: Seen = last === undefined || last.value !== value ? { value, changedAt: now } : last
  subject.memory.set(name, seen)
  const runMs = now - subject.startedMonotonicMs
  const required = `no change after ${formatMs(withinMs)}`
  const quietMs = now - seen.changedAt
  if (runMs <= withinMs || quietMs > 0)
    return pass('both regions', required, `${show(value)}, unchanged for ${formatMs(quietMs)}`, { value })
  return fail('both regions', required, `${show(value)}, still changing after ${formatMs(runMs)}`, { value })
}
