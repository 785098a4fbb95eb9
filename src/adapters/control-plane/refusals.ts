import pg from 'pg'
import { HomeregionError } from '../../domain/errors.ts'

/** SQLSTATEs the control plane's own statements raise. */
export const REFUSAL = {
  /** The run is missing, closed, or held under another token. */
  lease: 'HC001',
  /** A run's key is not what the plan says. */
  planStale: 'HC004',
  /** An attempt that is to end is missing or has ended otherwise. */
  attempt: 'HC005',
  /** A run is to be closed while one of its keys is not ACTIVE. */
  keyLeftBehind: 'HC006',
  /** The ownership pointer was to move anywhere but to the next row of the log. */
  notForward: 'HC007',
  /** The head of the audit chain is missing. */
  auditHead: 'HC008',
  /** The schema's version is not the tool's. */
  version: 'HC009',
  /** A lease that is withheld was to be granted, or one that was granted was to be shortened. */
  leaseWithheld: 'HC010',
  /** Somebody who may not approve did, too few did, or somebody rejected. */
  notApproved: 'HC011',
  /** A region in exile was to be a target, or to come back before its time. */
  exiled: 'HC012',
  /** An item of a reconciliation was to be decided a second time. */
  decided: 'HC013',
  /** A failover stands in line for one of the keys. */
  inLine: 'HC014',
  /** A forced failover stands on a lease that is not over. */
  leaseNotOver: 'HC015',
  /** Another agent leads, or none does. */
  notLeading: 'HC016',
  /** A token that another run has was to be used. */
  tokenUsed: 'HC017',
  /** A region knows a later grant of its lease than the control plane. */
  behind: 'HC018',
  /** Another server of the control plane made the last grant of a lease. */
  otherServer: 'HC019',
} as const

const READ_ONLY = '25006'

/** It answers, and takes nothing: what it says of others is worth asking for. */
export function isReadOnly(error: HomeregionError): boolean {
  return error.fields['sqlstate'] === READ_ONLY
}

export function sqlstate(error: unknown): string | null {
  return error instanceof pg.DatabaseError ? (error.code ?? null) : null
}

/** Name of the violated constraint or index, else null. */
export function violated(error: unknown): string | null {
  return error instanceof pg.DatabaseError && /^23/.test(error.code ?? '') ? (error.constraint ?? null) : null
}

/** Surely rolled back, and worth another try: deadlock and serialization failure. */
export function isTransient(error: unknown): boolean {
  return ['40001', '40P01'].includes(sqlstate(error) ?? '')
}

/**
 * Coded error of what the database refused, for the causes that need no second look. Everything else is returned as it came:
 * the callers know which of their statements it can be.
 */
export function translate(error: unknown): unknown {
  if (!(error instanceof pg.DatabaseError)) return error
  const fields = { sqlstate: error.code ?? null, constraint: error.constraint ?? null }
  switch (error.code) {
    case '3F000':
    case '42P01':
    case '42883':
    case '42703':
      return new HomeregionError(
        'not-initialised',
        {
          fact: `the control plane is not installed in this database, or is older than this tool: ${error.message}`,
          state: 'Nothing was changed.',
          next: 'homeregion init',
        },
        { cause: error, fields },
      )
    case '42501':
      return new HomeregionError(
        'privilege-missing',
        { fact: `the control plane login lacks a privilege: ${error.message}`, state: 'Nothing was changed.', next: 'homeregion init' },
        { cause: error, fields },
      )
    case READ_ONLY:
      return new HomeregionError(
        'control-plane-unreachable',
        {
          fact: `the control plane is read-only (a standby that was not promoted?): ${error.message}`,
          state: 'Nothing was changed.',
          next: 'homeregion doctor',
        },
        { cause: error, fields },
      )
    case '40003':
      return new HomeregionError(
        'outcome-unknown',
        { fact: `the control plane does not know whether it committed: ${error.message}` },
        { cause: error, fields },
      )
    case '55P03':
      return new HomeregionError(
        'control-plane-unreachable',
        {
          fact: 'another session holds what was to be changed in the control plane, which gave up waiting and rolled back',
          // A session whose way was cut is ended by the server, after twice the call's time.
          state: 'Nothing was changed; the same command may be given again in some seconds.',
          next: 'homeregion status',
        },
        { cause: error, retriable: true, fields },
      )
    // The server gave up on its own bounds, and rolled back.
    case '57014':
    case '40001':
    case '40P01':
      return new HomeregionError(
        'control-plane-unreachable',
        { fact: `the control plane rolled the change back: ${error.message}`, state: 'Nothing was changed.', next: 'homeregion doctor' },
        { cause: error, retriable: true, fields },
      )
    default:
      return error
  }
}

export function epochMoved(error: unknown, keys: readonly string[]): HomeregionError {
  return new HomeregionError(
    'epoch-moved',
    {
      fact: `ownership of ${keys.join(', ')} is not what this change expects: ${error instanceof Error ? error.message : String(error)}`,
      state: 'This change was refused as a whole.',
      next: 'homeregion status',
    },
    { cause: error, fields: { keys, constraint: violated(error) } },
  )
}

export function interlockRefused(why: string, key: string, cause?: unknown): HomeregionError {
  return new HomeregionError(
    'interlock-refused',
    {
      fact: `the control plane refused to activate ${key}: ${why}`,
      state: 'Ownership was not handed over.',
      next: 'homeregion status',
    },
    { ...(cause === undefined ? {} : { cause }), fields: { key, constraint: violated(cause) } },
  )
}
