import { lockBound, type Statement } from '../postgres/connection.ts'

/**
 * Goes first in a transaction of many keys: a session lets the server take twice what a call is waited for, and this one is waited for longer.
 * None where the session's own bound is enough.
 */
export function allow(timeoutMs: number, callTimeoutMs: number): readonly Statement[] {
  if (timeoutMs <= 2 * callTimeoutMs) return []
  return [
    {
      sql: `select set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)`,
      parameters: [String(Math.ceil(timeoutMs)), String(lockBound(timeoutMs))],
    },
  ]
}
