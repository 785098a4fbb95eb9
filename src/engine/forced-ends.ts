import { namesOfApprovers } from '../domain/approval.ts'
import { type ErrorCode, HomeregionError, isHomeregionError } from '../domain/errors.ts'
import type { ExitName } from '../domain/exit-codes.ts'
import type { RunState } from '../domain/journal.ts'
import { consent } from './checks/forced.ts'
import type { ForcedEnd, ForcedMove } from './forced-move.ts'
import { externalFences, releaseSource } from './outside-fence.ts'
import { isForeign, textOf } from './recover.ts'

/** Left to those who have to agree: the run stays open, and whoever goes on need not wait for its lease. */
export async function waits(move: ForcedMove, fenced: boolean): Promise<ForcedEnd> {
  const { engine, journal } = move
  const { policy, given } = await consent(move)
  await engine.controlPlane.release(journal.lease())
  const why = `run ${journal.runId} waits for approval: ${given} of ${policy.needed} (${namesOfApprovers(policy)})`
  const stands = fenced ? ' What keeps it from writing was left as it is.' : ''
  const state = `Nothing was handed over; ${move.source} still owns the keys on record.${stands}`
  return end(move, 'waiting', 'OPEN', why, state, `homeregion approve ${journal.runId}   then   homeregion resume ${journal.runId}`)
}

export async function interrupted(move: ForcedMove): Promise<ForcedEnd> {
  const { engine, journal } = move
  await journal.commit('interrupted', {})
  await engine.controlPlane.release(journal.lease())
  const state = `Nothing was handed over; ${move.source} still owns the keys on record. No fence was released.`
  return end(
    move,
    'interrupted',
    'OPEN',
    'interrupted; the state is saved',
    state,
    `homeregion resume ${journal.runId}   or   homeregion abort ${journal.runId}`,
  )
}

/** Nothing was handed over: what this run put up comes down, and the error says so. */
export async function refuse(move: ForcedMove, error: unknown): Promise<never> {
  const { journal } = move
  const coded = isHomeregionError(error) ? error : null
  try {
    await giveUp(move, 'REFUSED')
  } catch (second) {
    if (isForeign(second)) throw second
    throw new HomeregionError(
      'needs-human',
      {
        fact: `${textOf(error)}; and what the run had put up could not be taken down: ${textOf(second)}`,
        state: `Nothing was handed over; ${move.source} still owns the keys on record.`,
        next: `homeregion abort ${journal.runId}`,
      },
      { cause: error },
    )
  }
  if (coded === null) throw error
  const code = AFTER_GIVING_UP[coded.code] ?? coded.code
  throw new HomeregionError(
    code,
    {
      fact: coded.text.fact,
      state: `Nothing was handed over: ${move.source} still owns the keys on record.${await leaseNow(move)}`,
      next: nextAfter(move, coded),
    },
    { cause: coded, fields: { ...coded.fields, runId: journal.runId } },
  )
}

/**
 * The authority has said by now what came of a commit, and the request that was lost can do nothing more; a fence that failed is down again, as is all
 * that this run put up.
 */
const AFTER_GIVING_UP: Partial<Record<ErrorCode, ErrorCode>> = { 'outcome-unknown': 'rolled-back', 'fence-failed': 'check-refused' }

/** What became of the lease: another failover, or an exile, may go on withholding it. */
async function leaseNow({ engine, fence, source }: ForcedMove): Promise<string> {
  if (fence !== 'lease-over') return ''
  const lease = (await engine.controlPlane.leaseStates().catch(() => null))?.find(l => l.region === source)
  if (lease === undefined) return ''
  return lease.withheldBy === null ? ' Its lease may be granted again.' : ` Its lease stays withheld (run ${lease.withheldBy}).`
}

/** The figures, or the keys, have to be read again before anything else is typed. */
const PLAN_AGAIN = new Set<ErrorCode>(['outcome-unknown', 'loss-not-acknowledged', 'ack-token-refused', 'loss-forbidden', 'declined'])

function nextAfter(move: ForcedMove, error: HomeregionError): string {
  const pair = `--from ${move.source} --to ${move.target}`
  if (error.code === 'source-answers') return `homeregion failover ${pair}   (without --force: it loses nothing)`
  if (PLAN_AGAIN.has(error.code)) return `homeregion plan failover ${pair}`
  return error.text.next ?? `homeregion run show ${move.journal.runId}`
}

export async function giveUp(move: ForcedMove, runState: 'REFUSED' | 'ABORTED'): Promise<void> {
  const { journal, engine } = move
  await journal.retake()
  await releaseSource(move, externalFences(move))
  await engine.fault('forced:released')
  await journal.commit('give-up', { runState, keyOutcomes: move.moves.map(m => ({ key: m.key, outcome: 'not-moved' as const })) })
}

export function onlyForward(move: ForcedMove, fact: string): ForcedEnd {
  const state = `${count(move)} ${move.moves.length === 1 ? 'is' : 'are'} ${move.target}'s since the commit, there is only forward; that ${move.target} writes them was not confirmed.`
  return end(move, 'needsHuman', 'NEEDS_HUMAN', fact, state, `homeregion resume ${move.journal.runId}`)
}

export function end(move: ForcedMove, exit: ExitName, state: RunState, fact: string, data: string, next: string | null): ForcedEnd {
  const { source, target, fence, moves, records } = move
  const owned = new Set(records.filter(r => r.homeRegion === target).map(r => r.key))
  const blocked = move.estimate?.blocked ?? []
  return {
    runId: move.journal.runId,
    exit,
    state,
    source,
    target,
    fence,
    blocked,
    fact,
    data,
    next,
    moved: moves.filter(m => owned.has(m.key)),
  }
}

export function count({ moves }: ForcedMove): string {
  return `${moves.length} ${moves.length === 1 ? 'key' : 'keys'}`
}
