import { formatMs } from '../../domain/duration.ts'
import { fail, pass, unknown } from '../../domain/evidence.ts'
import type { PartitionEnd } from '../../domain/ports.ts'
import { type CheckHandler, keyOf } from '../context.ts'

/**
 * How far the target is behind while the source still serves. Two witnesses, neither trusted alone: the oldest unpublished event of the key
 * by the source's own clock, and what the target's inbox group has committed of the source's topic. -1 or no commit is no evidence. Where the
 * partition of the key is known the others do not count: an event that is held there stops the keys that share its partition, and no others.
 */
export const replicationBehind: CheckHandler = async (engine, subject, use) => {
  const { move } = keyOf(subject)
  const atMostMs = use.parameters['atMost'] ?? 0
  const required = `at most ${formatMs(atMostMs)} behind`
  const observer = `${move.source} outbox and Kafka, ${move.target} inbox group`
  const stream = engine.stream(move.source)
  const [backlog, all] = await Promise.all([
    engine.region(move.source).unpublished(move.key),
    stream.outboxEnds(engine.policy.inboxGroup(move.target)),
  ])
  if (backlog.count > 0 && (backlog.oldestAgeMs ?? Number.POSITIVE_INFINITY) > atMostMs)
    return fail(
      observer,
      required,
      `${backlog.count} unpublished, oldest ${formatMs(backlog.oldestAgeMs ?? 0)} (event ${backlog.oldestEventId ?? '?'}): is the relay of ${move.source} running?`,
    )
  // A young event may be on its way, or in front of a relay that has just stopped: the next look tells, by whether it has left.
  if (backlog.count > 0 && (subject.memory.get('oldest') ?? backlog.oldestEventId) === backlog.oldestEventId) {
    subject.memory.set('oldest', backlog.oldestEventId)
    return unknown(
      observer,
      required,
      `${backlog.count} unpublished, oldest ${formatMs(backlog.oldestAgeMs ?? 0)} (event ${backlog.oldestEventId ?? '?'}), watching whether it leaves`,
    )
  }
  if (all.length === 0) return unknown(observer, required, 'the outbox topic has no partitions')
  const own = stream.partitionOf(move.key, all.length)
  const ends = own === null ? all : all.filter(e => e.partition === own)
  const unseen = own !== null && ends.length === 0 ? [own] : ends.filter(e => e.committed === null && e.end !== '0').map(e => e.partition)
  if (unseen.length > 0)
    return unknown(observer, required, `the inbox group of ${move.target} has committed nothing on partition ${unseen.join(', ')}`)
  const behind = ends.reduce((sum, e) => sum + lag(e), 0n)
  const first = subject.memory.get('behind') as { ends: readonly { partition: number; end: string }[]; at: number } | undefined
  const now = engine.clock.monotonicMs()
  const facts = { partition: own, behind: all.filter(e => lag(e) > 0n).map(e => ({ partition: e.partition, events: String(lag(e)) })) }
  const seen = `${behind} events behind${own === null ? '' : ` on partition ${own}`}`
  if (behind === 0n) return pass(observer, required, seen, facts)
  // Events keep coming, so "behind" alone says nothing about time: what stood at the end `atMost` ago must have been consumed by now.
  if (first === undefined) {
    subject.memory.set('behind', { ends, at: now })
    return unknown(observer, required, `${seen}, watching whether they are consumed`, facts)
  }
  const late = first.ends.filter(was => BigInt(ends.find(e => e.partition === was.partition)?.committed ?? '0') < BigInt(was.end))
  if (late.length === 0) return pass(observer, required, `${seen}; what stood ${formatMs(now - first.at)} ago has been consumed`, facts)
  if (now - first.at <= atMostMs) return unknown(observer, required, `${seen}, watching whether they are consumed`, facts)
  subject.memory.set('behind', { ends, at: now })
  const whose = own === null ? '' : `, where the events of ${move.key} go,`
  return fail(observer, required, `${seen}${whose} for more than ${formatMs(now - first.at)}: ${stalled(late, ends, move.target)}`, facts)
}

/** From which offset on the target's group has not moved: what stands there is held, or nobody reads. */
function stalled(late: readonly { readonly partition: number }[], ends: readonly PartitionEnd[], target: string): string {
  const stands = late.map(
    ({ partition }) => `partition ${partition} at offset ${ends.find(e => e.partition === partition)?.committed ?? '0'}`,
  )
  return `the inbox of ${target} stands on ${stands.slice(0, 3).join(', ')}${stands.length > 3 ? ` and ${stands.length - 3} more` : ''}: is it running, and does it hold an event there (its stats name the reason)?`
}

/** Ends and commits are read one after the other: a commit may be newer than the end beside it. An empty partition has no commit and lacks nothing. */
function lag(end: PartitionEnd): bigint {
  const behind = BigInt(end.end) - BigInt(end.committed ?? '0')
  return behind > 0n ? behind : 0n
}

/** Only planned where a mirror copies events between the Kafkas; its evidence comes with that transport. */
export const eventsReplicated: CheckHandler = async (_engine, subject) => {
  const { move } = keyOf(subject)
  return unknown(`${move.target} Kafka`, 'the key’s events in the Kafka the target reads', 'this mirror is not observed by this version')
}
