import { HomeregionError } from './errors.ts'
import { UNPRINTABLE } from './unprintable.ts'

export const KEY_MAX_CHARACTERS = 200

/** Why `raw` cannot be an ownership key, or null when it can. The same rule holds in the command line, files and `key add`. */
export function keyProblem(raw: string): string | null {
  if (raw === '') return 'a key cannot be empty'
  if ([...raw].length > KEY_MAX_CHARACTERS) return `a key has at most ${KEY_MAX_CHARACTERS} characters, this one has ${[...raw].length}`
  if (UNPRINTABLE.test(raw)) return 'a key cannot contain control, zero-width or bidirectional characters'
  if (raw.trim() !== raw) return 'a key cannot begin or end with white space'
  if (raw.startsWith('-')) return 'a key cannot begin with "-"'
  return null
}

/** @throws HomeregionError `invalid-key` (exit 64) */
export function parseKey(raw: string): string {
  const problem = keyProblem(raw)
  if (problem === null) return raw
  throw new HomeregionError('invalid-key', {
    fact: `${showKey(raw)} is not a valid key: ${problem}`,
    state: 'Nothing was changed.',
    next: 'homeregion key list',
  })
}

/** A key as it may be shown anywhere: plain when it is plain, else JSON-quoted with everything unprintable escaped and cut at 80 characters. */
export function showKey(key: string): string {
  if (/^[\p{L}\p{N}_.:@/+-]+$/u.test(key) && [...key].length <= 80) return key
  const cut = [...key].length > 80 ? `${[...key].slice(0, 79).join('')}…` : key
  return JSON.stringify(cut).replace(new RegExp(UNPRINTABLE.source, 'gu'), c => `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`)
}
