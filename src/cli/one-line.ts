import { HomeregionError } from '../domain/errors.ts'
import { UNPRINTABLE } from '../domain/unprintable.ts'

/** What people say in their own words, by the name of its option. */
const FREE_TEXT = ['reason', 'attest', 'ticket'] as const

/** It stands in records that others read line by line at night: none of it may pass for a line of ours. @throws `usage` */
export function requireOneLine(option: string, text: string): void {
  if (!UNPRINTABLE.test(text)) return
  throw new HomeregionError('usage', {
    fact: `--${option} has a line break or a control character in it`,
    state: 'Nothing was read or changed.',
    next: `the same command with --${option} on one line of plain text`,
  })
}

export function requireOneLines(options: Readonly<Record<string, unknown>>): void {
  for (const option of FREE_TEXT) {
    const text = options[option]
    if (typeof text === 'string') requireOneLine(option, text)
  }
}
