import * as z from 'zod/mini'
import { DURATION_PATTERN } from '../../domain/duration.ts'
import { PRINTABLE } from '../../domain/unprintable.ts'

export const text = z
  .string()
  .check(z.minLength(1, { error: 'must not be empty', abort: true }), z.maxLength(500, 'is longer than 500 characters'))
export const name = text.check(z.regex(PRINTABLE, 'must not contain control characters'))
export const durationOr = (refused: string) => z.string().check(z.regex(DURATION_PATTERN, refused))
export const duration = durationOr('must be a number with its unit: 500ms, 30s, 5m')
export const count = (most: number) => z.int().check(z.minimum(1), z.maximum(most))

/** A copy, since whatever is made of a described schema inherits its words. */
export function said<T extends z.ZodMiniType>(schema: T, description: string): T {
  const copy = z.clone(schema)
  z.globalRegistry.add(copy, { description })
  return copy
}

export const url = said(text, 'postgres://user@host:port/database, without a password.')
