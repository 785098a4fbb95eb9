import { HomeregionError } from '../src/domain/errors.ts'

/** The sandbox could not do something: what, and the command or package that mends it. */
export function sandboxError(fact: string, next: string, cause?: unknown): HomeregionError {
  return new HomeregionError('sandbox', { fact, next }, cause === undefined ? {} : { cause })
}
