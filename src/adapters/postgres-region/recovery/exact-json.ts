import type { Json } from '../../../domain/evidence.ts'

/** JavaScript's numbers are exact up to here, and know no sign of zero in JSON; another one stays text, so that nobody applies what was not written. */
const INEXACT_NUMBER = /\d{16}|\d[eE]|\.\d{15}|-0(?:\.0+)?(?![.\d])/

/** JSON as PostgreSQL wrote it; as text where JavaScript could not hold it as it is. */
export function exactJson(text: string | null): Json {
  if (text === null) return null
  const outsideStrings = text.replace(/"(?:[^"\\]|\\.)*"/g, '""')
  if (INEXACT_NUMBER.test(outsideStrings)) return { 'homeregion.text': text }
  const parsed = JSON.parse(text) as Json
  // Of a name that is there twice the parser keeps one.
  return names(parsed) === outsideStrings.split(':').length - 1 ? parsed : { 'homeregion.text': text }
}

function names(json: Json): number {
  if (typeof json !== 'object' || json === null) return 0
  const values: readonly Json[] = Array.isArray(json) ? json : Object.values(json)
  return (Array.isArray(json) ? 0 : values.length) + values.reduce((sum: number, value) => sum + names(value), 0)
}
