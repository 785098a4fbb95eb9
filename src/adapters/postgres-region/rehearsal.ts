import { randomUUID } from 'node:crypto'
import type { Statement } from '../postgres/connection.ts'

/**
 * The whole way of a key that nobody has, for a transaction that is rolled back: the first call of a function in a session compiles it and
 * plans its statements, which takes several times as long as the call itself and would be write downtime. The key is a UUID, which a text
 * and a uuid column take.
 */
export function rehearsal(region: string): readonly Statement[] {
  const key = randomUUID()
  return [
    { sql: 'select * from homeregion.register($1, $2, $3)', parameters: [[key], [region], [1]] },
    { sql: 'select * from homeregion.drain($1, $2, $3)', parameters: [key, 1, 1] },
    { sql: 'select * from homeregion.fence($1, $2, $3, $4)', parameters: [key, 1, 1, randomUUID()] },
    { sql: 'select * from homeregion.open($1, $2, $3)', parameters: [key, 2, 1] },
  ]
}

/** Waiting for the lock of a key that nobody has. */
export function rehearsedLook(): readonly Statement[] {
  return [{ sql: 'select * from homeregion.in_flight($1, $2)', parameters: [randomUUID(), 1] }]
}
