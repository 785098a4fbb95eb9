import { HomeregionError } from '../../domain/errors.ts'
import type { ForcedChange } from '../../domain/journal.ts'
import { showKey } from '../../domain/key.ts'
import { epochMoved, REFUSAL, sqlstate, violated } from './refusals.ts'

const STATE = 'Ownership was not handed over: this change was refused as a whole.'
/** Through these the database refuses what somebody acknowledged. */
const TOKEN = [
  ...['acknowledgement_token', 'acknowledgement_token_once', 'acknowledgement_with_token', 'acknowledgement_in_time'],
  'acknowledgement_token_redeemed',
]
/** Through these it says that the keys are not where the change expects them. */
const MOVED = ['forced_activation_move']

/** What a refused forced failover means, or null where it is none of these. */
export function forcedRefusal(error: unknown, change: ForcedChange): HomeregionError | null {
  const constraint = violated(error) ?? ''
  const why = error instanceof Error ? error.message : constraint
  if (TOKEN.includes(constraint)) return ackTokenRefused(tokenProblem(constraint), error)
  if (constraint === 'forced_activation_acknowledged')
    return lossNotAcknowledged('what may be lost of a key is more than the acknowledgement covers', error)
  if (constraint === 'forced_activation_rpo')
    return new HomeregionError(
      'loss-forbidden',
      { fact: 'the policy of a key forbids to lose what may be lost of it', state: STATE, next: 'homeregion plan failover' },
      { cause: error },
    )
  if (constraint === 'forced_failover_needs_approval' || sqlstate(error) === REFUSAL.notApproved)
    return new HomeregionError(
      'approval-refused',
      { fact: `the control plane refused the failover: ${why}`, state: STATE, next: `homeregion approve ${change.permit.runId}` },
      { cause: error },
    )
  if (sqlstate(error) === REFUSAL.exiled) return regionExiled(change.permit.target, error)
  if (sqlstate(error) === REFUSAL.leaseNotOver) return forcedInterlockRefused(why, error)
  const keys = change.expected.slice(0, 10).map(r => showKey(r.key))
  const log = ['ownership_log_pkey', 'ownership_log_predecessor', 'ownership_log_transition', 'ownership_log_run', 'ownership_is_logged']
  if (MOVED.includes(constraint) || log.includes(constraint) || sqlstate(error) === REFUSAL.notForward) return epochMoved(error, keys)
  return /^(forced_|ownership_log_forced|approval_policy)/.test(constraint) ? forcedInterlockRefused(why, error) : null
}

function tokenProblem(constraint: string): string {
  switch (constraint) {
    case 'acknowledgement_token_once':
      return 'the acknowledgement token was used already'
    case 'acknowledgement_in_time':
      return 'the acknowledgement token is over'
    case 'acknowledgement_with_token':
      return 'the acknowledgement token is not one of this run'
    default:
      return 'the acknowledgement token is for another plan, other keys or another bound'
  }
}

export function ackTokenRefused(why: string, cause?: unknown): HomeregionError {
  return new HomeregionError(
    'ack-token-refused',
    { fact: why, state: STATE, next: 'homeregion plan failover' },
    { ...(cause === undefined ? {} : { cause }) },
  )
}

export function lossNotAcknowledged(why: string, cause?: unknown): HomeregionError {
  return new HomeregionError(
    'loss-not-acknowledged',
    { fact: why, state: STATE, next: 'homeregion plan failover' },
    { ...(cause === undefined ? {} : { cause }) },
  )
}

export function forcedInterlockRefused(why: string, cause?: unknown): HomeregionError {
  return new HomeregionError(
    'interlock-refused',
    { fact: `the control plane refused the forced failover: ${why}`, state: STATE, next: 'homeregion status' },
    { ...(cause === undefined ? {} : { cause }), fields: { constraint: violated(cause) } },
  )
}

export function regionExiled(region: string, cause?: unknown, why = 'it was failed over and is not back'): HomeregionError {
  return new HomeregionError(
    'region-exiled',
    { fact: `${region} is in exile: ${why}`, state: 'Nothing was changed.', next: `homeregion rejoin ${region} --reason TEXT` },
    { ...(cause === undefined ? {} : { cause }), fields: { region } },
  )
}
