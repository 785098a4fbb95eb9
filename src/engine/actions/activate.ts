import { HomeregionError, isHomeregionError } from '../../domain/errors.ts'
import { decideActivation } from '../../domain/interlock.ts'
import { showKey } from '../../domain/key.ts'
import { recordAfter } from '../../domain/ownership.ts'
import { observe } from '../checks/observe.ts'
import { closedBecause } from '../closed-region.ts'
import { requireTargetClosed } from '../contradiction.ts'
import { isMoved, type KeyMove, refresh, take } from '../key-move.ts'
import type { Action } from './action.ts'

export const activate: Action<'activate'> = {
  kind: 'activate',
  plan: move => `hand ${showKey(move.key)} to ${move.target} under epoch ${move.epoch + 1}, by compare-and-swap`,
  apply: async (key, step) => {
    const attemptId = isMoved(key.move, key.record) ? await startOpening(key, step.id) : await handOver(key, step.id)
    key.reached = 'activated'
    const row = await key.engine.region(key.move.target).open(key.move.key, key.record.epoch, key.journal.lease().token)
    if (key.drainSentMs !== null) key.stoppedMs = key.engine.clock.monotonicMs() - key.drainSentMs
    await key.engine.fault('activate:opened')
    key.journal.buffer({ ends: [{ id: attemptId, outcome: 'done', result: { ...row } }] })
  },
  verify: async key => {
    const record = await refresh(key)
    if (!isMoved(key.move, record)) return 'not-done'
    const row = await key.engine.region(key.move.target).read(key.move.key)
    return row?.writable === true && row.epoch === record.epoch ? 'done' : 'not-done'
  },
  // The commit is the point of no return: after it only forward.
  undo: null,
}

/**
 * Every required check is looked at again, the interlock decides on that alone, and one transaction records the evidence, the attempt and
 * the change of ownership. If the process dies before the commit, the key is fenced and can still go back; after it, it is the target's.
 */
async function handOver(key: KeyMove, stepId: string): Promise<string> {
  const { engine, journal, move } = key
  const attemptId = engine.newId()
  const policy = engine.policy.interlock
  const uses = policy.required.map(check => ({ check, parameters: {} }))
  const bound = { runId: journal.runId, step: stepId, attemptId }
  key.caughtUp.abort()
  await engine.fault('caught-up')
  const [evidence, target, conditions] = await Promise.all([
    Promise.all(uses.map(use => observe(engine, key.subject, use, bound))),
    engine.region(move.target).read(move.key),
    engine.region(move.target).conditions(),
    key.pending,
  ])
  await engine.fault('activate:verified')
  requireTargetClosed(key, target)
  // Closed since the preflight: handed over now, the key could be written nowhere, and there would be no way back.
  const closed = closedBecause(move.target, conditions)
  if (closed.length > 0)
    throw new HomeregionError('check-refused', {
      fact: `${showKey(move.key)} was not handed over: ${closed.join('; ')}`,
      next: `homeregion fence status ${move.target}`,
    })
  const request = {
    runId: journal.runId,
    key: move.key,
    targetRegion: move.target,
    epoch: move.epoch,
    attemptId,
    nowMonotonicMs: engine.clock.monotonicMs(),
  }
  // A catch-up too short for a commit of its own is recorded in this one, in front of the activation.
  const fenced = key.record.state === 'FENCED' ? key.record : null
  const expected = fenced === null ? key.record : recordAfter(fenced, 'catch-up', { runId: journal.runId })
  const decision = decideActivation(expected, evidence, policy, request)
  if (decision.permit === null) {
    journal.buffer({ evidence })
    throw new HomeregionError(
      'interlock-refused',
      { fact: `activation of ${showKey(move.key)} was refused: ${decision.refusals.join('; ')}` },
      { fields: { refusals: decision.refusals } },
    )
  }
  key.reached = 'activation-sent'
  take(
    key,
    await journal.commit('activate', {
      starts: [{ id: attemptId, key: move.key, step: stepId, action: 'activate' }],
      ownership: fenced === null ? [] : [{ transition: 'catch-up', expected: fenced }],
      activation: { expected, permit: decision.permit },
    }),
  )
  return attemptId
}

/** Ownership was handed over by an earlier attempt that did not live to open the target. */
async function startOpening(key: KeyMove, stepId: string): Promise<string> {
  const id = key.engine.newId()
  await key.journal.commit('open-start', { starts: [{ id, key: key.move.key, step: stepId, action: 'activate' }] })
  return id
}

/**
 * The other region learns who owns the key, and both Kafkas carry the announcement, which only informs. A former home that was not told
 * refuses the key, but refuses its new home's events too: the run stays open until it is.
 * @throws what kept the former home from being told, after an activation; a contradiction, always
 */
export async function announceOwner(key: KeyMove): Promise<void> {
  const { engine, journal, move, record } = key
  const token = journal.lease().token
  const owner = record.homeRegion
  const other = owner === move.target ? move.source : move.target
  const told = await Promise.allSettled([
    engine.policy.shared ? Promise.resolve() : engine.region(other).follow(move.key, owner, record.epoch, token),
    engine.stream(move.source).announce(record),
    engine.stream(move.target).announce(record),
  ])
  for (const answer of told) {
    if (answer.status === 'fulfilled') continue
    const own = answer === told[0]
    if (own && (owner === move.target || isHomeregionError(answer.reason, 'epoch-moved'))) throw answer.reason
    if (isHomeregionError(answer.reason, 'superseded')) throw answer.reason
    const text = answer.reason instanceof Error ? answer.reason.message : String(answer.reason)
    engine.operator.report({
      type: 'note',
      text: `${showKey(move.key)} is ${owner}'s (epoch ${record.epoch}), but not everybody was told: ${text}`,
    })
  }
}
