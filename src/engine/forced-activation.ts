import { type CheckName, checkSpec } from '../domain/checks.ts'
import { HomeregionError } from '../domain/errors.ts'
import type { Evidence } from '../domain/evidence.ts'
import { decideForcedActivation } from '../domain/forced-interlock.ts'
import { showKey } from '../domain/key.ts'
import { consent } from './checks/forced.ts'
import { observe } from './checks/observe.ts'
import type { CheckSubject } from './context.ts'
import type { ForcedMove } from './forced-move.ts'
import { isMoved } from './key-move.ts'
import { triesForHandOver } from './look-ahead.ts'
import { textOf } from './recover.ts'
import { drawAbove } from './tokens.ts'

/** Rows of a boundary that one statement opens: short enough for the call timeout on a slow machine. */
const OPENED_AT_ONCE = 500
/** Announcements under way at once; they inform caches, and nobody waits for them. */
const ANNOUNCED_AT_ONCE = 200

export function subjectOf(move: ForcedMove): CheckSubject {
  const { moves, engine } = move
  const startedMonotonicMs = engine.clock.monotonicMs()
  return { moves, move: moves[0] ?? null, barrierEventId: null, startedMonotonicMs, standing: [], memory: new Map() }
}

/**
 * Everything is looked at once more, the interlock decides on that alone, and one commit hands all keys over. Dying before it: nothing has
 * happened. Dying after it: the keys are the target's, and there is only forward.
 */
export async function handOverAll(move: ForcedMove, stepId: string): Promise<string> {
  const { engine, journal, settings, source, target, fence } = move
  const attemptId = engine.newId()
  const look = async (check: CheckName): Promise<Evidence> =>
    await observe(engine, subjectOf(move), { check, parameters: {} }, { runId: journal.runId, step: stepId, attemptId })
  await engine.fault('forced:looking')
  const [tries, { policy: approvals, needed, text, rejectedBy }] = await Promise.all([triesForHandOver(move), consent(move)])
  move.tries = tries
  // Goes into the estimate, which is why that one is looked at after it; as of when the tries were begun.
  const dark = look('source-dark').then(e => ({ ...e, asOf: tries.asOf, asOfMonotonicMs: tries.asOfMonotonicMs }))
  const loss = dark.then(async () => await look('loss-acknowledged'))
  const asked: readonly CheckName[] = [
    ...(['target-can-write', 'no-region-ahead', fence] as const),
    ...(needed || text !== '' || rejectedBy !== null ? (['approved'] as const) : []),
  ]
  const [evidence, records] = await Promise.all([
    Promise.all([dark, loss, ...asked.map(look)]),
    engine.controlPlane.ownership(move.moves.map(m => m.key)),
  ])
  await engine.fault('forced:verified')
  const { estimate } = move
  if (estimate === null) throw refusalOf(evidence, [])
  const decision = decideForcedActivation(
    records,
    evidence,
    { ...settings.policy, approvals },
    {
      ...{ runId: journal.runId, intent: move.runbook.intent, source, target, attemptId, estimate, automatic: move.automatic },
      nowMonotonicMs: engine.clock.monotonicMs(),
    },
  )
  if (decision.permit === null) {
    journal.buffer({ evidence })
    throw refusalOf(evidence, decision.refusals)
  }
  move.records = await journal.commit('forced', {
    starts: [{ id: attemptId, key: null, step: stepId, action: 'activate' }],
    forced: { expected: records, permit: decision.permit, estimate, acknowledgement: move.acknowledgement },
  })
  return attemptId
}

/** One error for many refusals: the one that tells the operator most about what to do next. */
export function refusalOf(evidence: readonly Evidence[], refusals: readonly string[]): HomeregionError {
  const bad = (check: CheckName) => evidence.findLast(e => e.check === check && e.verdict !== 'pass')
  const said = (e: Evidence) => `${e.check}: ${e.verdict}: ${e.observed} (required: ${e.required})`
  const text = (check: CheckName, fallback: string) => {
    const seen = bad(check)
    return seen === undefined ? fallback : said(seen)
  }
  const all = evidence.filter(e => e.verdict !== 'pass').map(said)
  const fact = all.length > 0 ? all.join('; ') : refusals.slice(0, 5).join('; ')
  const dark = bad('source-dark')
  if (dark !== undefined && dark.verdict === 'fail')
    return new HomeregionError('source-answers', {
      fact: `the source answers: ${dark.observed}`,
      next: 'homeregion failover without --force',
    })
  const loss = bad('loss-acknowledged')
  if (loss !== undefined && loss.verdict === 'fail')
    return Number(loss.facts?.['forbidden'] ?? 0) > 0
      ? new HomeregionError('loss-forbidden', { fact: loss.observed, next: 'homeregion plan failover' })
      : new HomeregionError('loss-not-acknowledged', { fact: text('loss-acknowledged', fact), next: 'homeregion plan failover' })
  if (bad('approved') !== undefined)
    return new HomeregionError('approval-refused', { fact: text('approved', fact), next: 'homeregion status' })
  const checks = evidence.length > 0 && evidence.some(e => checkSpec(e.check).proves === null && e.verdict !== 'pass')
  return new HomeregionError(checks ? 'check-refused' : 'interlock-refused', { fact, next: 'homeregion doctor' })
}

/** Makes the target the writable home of every key. Idempotent; what is open already stays open. */
export async function openAll(move: ForcedMove): Promise<void> {
  const { engine, journal, target, moves } = move
  // A run that was seized may have shown the target a newer token than ours.
  await journal.retake()
  await drawAbove(
    engine,
    journal,
    [target],
    moves.map(m => m.key),
  )
  for (let i = 0; i < moves.length; i += OPENED_AT_ONCE) {
    const batch = moves.slice(i, i + OPENED_AT_ONCE).map(m => ({ key: m.key, epoch: m.epoch + 1 }))
    const rows = new Map((await engine.region(target).openMany(batch, journal.lease().token)).map(r => [r.key, r]))
    const closed = batch.find(b => rows.get(b.key)?.writable !== true || rows.get(b.key)?.epoch !== b.epoch)
    if (closed !== undefined)
      throw new HomeregionError('needs-human', {
        fact: `${target}'s boundary does not have ${showKey(closed.key)} open: ${rows.get(closed.key)?.state ?? 'unknown'}`,
      })
    if (i === 0) await engine.fault('forced:first-opened')
  }
  await engine.fault('forced:opened')
}

/** On the target's Kafka; the source's is dark, and an announcement only informs. */
export async function announceAll(move: ForcedMove): Promise<void> {
  const { engine, target, records } = move
  const stream = engine.stream(target)
  for (let i = 0; i < records.length; i += ANNOUNCED_AT_ONCE) {
    const told = await Promise.allSettled(records.slice(i, i + ANNOUNCED_AT_ONCE).map(async record => await stream.announce(record)))
    const failed = told.find(t => t.status === 'rejected')
    if (failed === undefined) continue
    engine.operator.report({ type: 'note', text: `not everybody was told who owns the keys: ${textOf(failed.reason)}` })
    return
  }
}

/** The authority after an answer that was lost: true when the keys are the target's. @throws while it cannot be asked */
export async function wasHandedOver(move: ForcedMove): Promise<boolean> {
  const records = await move.engine.controlPlane.ownership(move.moves.map(m => m.key))
  const byKey = new Map(records.map(r => [r.key, r]))
  const first = move.moves[0]
  const record = first === undefined ? undefined : byKey.get(first.key)
  // One commit moved all of them or none.
  const moved = first !== undefined && record !== undefined && isMoved(first, record)
  if (moved) move.records = records
  return moved
}
