import { SQLSTATE } from '../../domain/boundary.ts'
import { HomeregionError } from '../../domain/errors.ts'
import { regionExiled } from './forced-refusal.ts'
import type { LogEntry } from './ownership-changes.ts'
import { epochMoved, interlockRefused, REFUSAL, sqlstate, violated } from './refusals.ts'

/** Constraints through which the database refuses an activation. */
const INTERLOCK = /^(activation_|ownership_log_(interlock|activation)$|interlock_policy)/
/** Constraints that say that the record is not the one the change was made for. */
const MOVED = ['ownership_log_pkey', 'ownership_log_predecessor', 'ownership_log_transition', 'ownership_log_run', 'ownership_is_logged']

/** What a refused journal commit means, or null where it is none of these. The transaction was rolled back as a whole. */
export function commitRefusal(error: unknown, entries: readonly LogEntry[]): HomeregionError | null {
  const constraint = violated(error)
  const keys = entries.map(e => e.key)
  if (constraint !== null && MOVED.includes(constraint)) return epochMoved(error, keys)
  if (sqlstate(error) === REFUSAL.notForward) return epochMoved(error, keys)
  // Where the regions share the control plane's database, their boundary follows in this transaction, or refuses it.
  if (sqlstate(error) === SQLSTATE.unexpectedState) return epochMoved(error, keys)
  if (sqlstate(error) === SQLSTATE.superseded)
    return new HomeregionError(
      'superseded',
      { fact: error instanceof Error ? error.message : 'a newer run has the key', state: 'This change was refused as a whole.' },
      { cause: error, fields: { keys } },
    )
  if (sqlstate(error) === SQLSTATE.regionFenced)
    return new HomeregionError(
      'check-refused',
      {
        fact: error instanceof Error ? error.message : 'the region is fenced as a whole',
        state: 'This change was refused as a whole.',
        next: 'homeregion fence status',
      },
      { cause: error, fields: { keys, sqlstate: SQLSTATE.regionFenced } },
    )
  const activated = entries.find(e => e.activationId !== null)
  if (sqlstate(error) === REFUSAL.exiled && activated !== undefined) return regionExiled(activated.toHome, error)
  // An epoch is handed over once: a second activation comes too late, whatever its evidence.
  if (constraint === 'activation_once') return epochMoved(error, keys)
  if (constraint !== null && activated !== undefined && (INTERLOCK.test(constraint) || violatedTable(error) === 'activation'))
    return interlockRefused(error instanceof Error ? error.message : constraint, activated.key, error)
  if (sqlstate(error) === REFUSAL.keyLeftBehind)
    return new HomeregionError(
      'needs-human',
      {
        fact: 'the run cannot be closed: one of its keys is not ACTIVE',
        state: 'The run stays open and holds its keys.',
        next: 'homeregion abort',
      },
      { cause: error },
    )
  if (sqlstate(error) === REFUSAL.attempt)
    return new HomeregionError(
      'unexpected',
      { fact: 'an attempt that was to end is not in the journal, or has ended otherwise', state: 'This change was refused as a whole.' },
      { cause: error },
    )
  return null
}

/** A not-null violation names its table and column only. */
function violatedTable(error: unknown): string | null {
  return error instanceof Error && 'table' in error && typeof error.table === 'string' ? error.table : null
}
