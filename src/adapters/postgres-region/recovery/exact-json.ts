import type { Json } from '../../../domain/evidence.ts'

/** JavaScript's numbers are exact up to here; a longer one stays text, so that nobody applies another number than was written. */
const LONG_NUMBER = /\d{16}|\d[eE]|\.\d{15}/

/** JSON as PostgreSQL wrote it. */
export function exactJson(text: string | null): Json {
  if (text === null) return null
  const outsideStrings = text.replace(/"(?:[^"\\]|\\.)*"/g, '""')
  return LONG_NUMBER.test(outsideStrings) ? { 'homeregion.text': text } : (JSON.parse(text) as Json)
}
