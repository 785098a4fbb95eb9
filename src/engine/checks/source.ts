import type { InFlightWrite } from '../../domain/boundary.ts'
import { formatMs } from '../../domain/duration.ts'
import { fail, pass } from '../../domain/evidence.ts'
import { showKey } from '../../domain/key.ts'
import { type CheckHandler, keyOf } from '../context.ts'

/** How long one look may queue for the key's lock. Refused newcomers wait behind it, so it is short; the gate asks again. */
const LOCK_WAIT_MS = 150

export const writesInFlight: CheckHandler = async (engine, subject, use) => {
  const { move } = keyOf(subject)
  const atMost = use.parameters['atMost'] ?? 0
  const open = await engine.region(move.source).inFlight(move.key, LOCK_WAIT_MS)
  const required = `at most ${atMost} open transactions that wrote ${showKey(move.key)}`
  const observer = `${move.source} database`
  if (open.length <= atMost) return pass(observer, required, open.length === 0 ? "0: the key's lock was obtained" : `${open.length} open`)
  return fail(
    observer,
    required,
    `${open.map(describeWriter).join('; ')}. To end it yourself: ${[...new Set(open.map(howToEnd))].join('; ')}`,
    { writers: open.map(w => ({ ...w })) },
  )
}

function describeWriter(writer: InFlightWrite): string {
  const who = writer.gid === null ? `pid ${writer.pid ?? '?'}` : `prepared transaction ${JSON.stringify(writer.gid)}`
  const age = writer.ageMs === null ? '' : `, open ${formatMs(writer.ageMs)}`
  const application = writer.application === null || writer.application === '' ? '' : ` (${showKey(writer.application)})`
  return `${who} of ${writer.role ?? 'unknown role'}${application}, ${writer.state}${age}`
}

/** Offered, never done: only somebody who knows the transaction can say whether its work may be thrown away. */
function howToEnd(writer: InFlightWrite): string {
  return writer.gid === null
    ? `select pg_terminate_backend(${writer.pid ?? '…'})`
    : `rollback prepared '${writer.gid.replaceAll("'", "''")}' (or commit prepared)`
}

export const outboxPublished: CheckHandler = async (engine, subject) => {
  const { move } = keyOf(subject)
  const backlog = await engine.region(move.source).unpublished(move.key)
  const observer = `${move.source} database`
  if (backlog.count === 0) return pass(observer, '0 unpublished events', '0 unpublished, seen after the last writer ended')
  const age = backlog.oldestAgeMs === null ? 'age unknown' : `oldest ${formatMs(backlog.oldestAgeMs)}`
  return fail(
    observer,
    '0 unpublished events',
    `${backlog.count} unpublished, ${age} (event ${backlog.oldestEventId ?? '?'}): is the relay running?`,
    {
      count: backlog.count,
      oldestAgeMs: backlog.oldestAgeMs,
      oldestEventId: backlog.oldestEventId,
    },
  )
}
