import { HomeregionError } from '../../domain/errors.ts'

/** Why a sink did not take a secret or give it back. `why` comes from us or from the system, never from a text that could quote the secret. */
export function sinkError(place: string, why: string, next?: string, fields: Record<string, unknown> = {}): HomeregionError {
  return new HomeregionError('fence-failed', { fact: `${place}: ${why}`, ...(next === undefined ? {} : { next }) }, { fields })
}
