import pg from 'pg'
import { SQLSTATE } from '../../domain/boundary.ts'
import { type ErrorCode, HomeregionError } from '../../domain/errors.ts'

/** SQLSTATE of a server's error, however deep; null for everything else. */
export function sqlstate(error: unknown): string | null {
  if (error instanceof pg.DatabaseError) return error.code ?? null
  return error instanceof Error && error.cause !== undefined ? sqlstate(error.cause) : null
}

const CODES: Readonly<Record<string, { code: ErrorCode; retriable?: boolean; next?: string }>> = {
  [SQLSTATE.unexpectedState]: { code: 'epoch-moved', next: 'homeregion status' },
  [SQLSTATE.superseded]: { code: 'superseded', next: 'homeregion run list' },
  [SQLSTATE.notHome]: { code: 'check-refused', next: 'homeregion status' },
  [SQLSTATE.regionFenced]: { code: 'check-refused', next: 'homeregion fence status' },
  [SQLSTATE.leaseOver]: { code: 'check-refused', next: 'homeregion status' },
  [SQLSTATE.misuse]: { code: 'not-initialised', next: 'homeregion doctor' },
  // The key's lock, or its row, was not free in time: the statement changed nothing, and may be sent again.
  '55P03': { code: 'check-refused', retriable: true, next: 'homeregion status' },
  '40P01': { code: 'check-refused', retriable: true },
  '42501': { code: 'privilege-missing', next: 'homeregion init --dry-run' },
  '3F000': { code: 'not-initialised', next: 'homeregion init' },
  '42P01': { code: 'not-initialised', next: 'homeregion init' },
  '42883': { code: 'not-initialised', next: 'homeregion init' },
  '42703': { code: 'config-invalid', next: 'homeregion doctor' },
  '22P02': { code: 'invalid-key', next: 'homeregion key list' },
  '22003': { code: 'invalid-key', next: 'homeregion key list' },
}

/** A region's refusal as a coded error. Errors that are coded already pass. */
export function boundaryError(error: unknown, region: string): HomeregionError {
  if (error instanceof HomeregionError) return error
  const state = sqlstate(error)
  const message = error instanceof Error ? error.message : String(error)
  const known = state === null ? undefined : CODES[state]
  const busy = state === '55P03' ? 'transactions that wrote the key are still open' : message
  return new HomeregionError(
    known?.code ?? 'unexpected',
    {
      fact: `${region} database refused: ${busy}${state === null ? '' : ` (${state})`}`,
      state: 'Nothing was changed there by this call.',
      ...(known?.next === undefined ? {} : { next: known.next }),
    },
    { cause: error, retriable: known?.retriable ?? false, fields: { region, sqlstate: state } },
  )
}
