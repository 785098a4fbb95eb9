import { createHash, randomInt } from 'node:crypto'
import type { AckToken } from '../../domain/failover.ts'
import type { Connection } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { requireVersion } from './schema-version.ts'

// Without letters that are mistaken for digits: it is read out, and typed. 16 of 31 are 79 bits.
const ALPHABET = '23456789abcdefghjkmnpqrstuvwxyz'

/** `any` takes part in foreign keys, where a null would switch the key off. */
export function boundColumn(boundMs: number | 'any'): number {
  return boundMs === 'any' ? -1 : Math.floor(boundMs)
}

export function tokenHash(token: string): string {
  return createHash('sha256').update(token.trim().toLowerCase(), 'utf8').digest('hex')
}

export async function issueAckToken(
  connection: Connection,
  about: {
    readonly planId: string
    readonly keysSha256: string
    readonly estimateSha256: string
    readonly boundMs: number | 'any'
  },
  lifeMs: number,
): Promise<string> {
  const group = () => Array.from({ length: 4 }, () => ALPHABET[randomInt(ALPHABET.length)]).join('')
  const token = `ack-${[group(), group(), group(), group()].join('-')}`
  const { planId, keysSha256, estimateSha256, boundMs } = about
  await connection.transaction('write', [
    requireVersion(),
    {
      sql: `insert into homeregion_control.ack_token (hash, plan_id, keys_sha256, estimate_sha256, bound_ms, expires_at)
values ($1, $2, $3, $4, $5, clock_timestamp() + $6::double precision * interval '1 millisecond')`,
      parameters: [tokenHash(token), planId, keysSha256, estimateSha256, boundColumn(boundMs), lifeMs],
    },
    ...appendAudit({ event: 'ack-token-issued', runId: null, key: null, detail: { planId, keysSha256, estimateSha256, bound: boundMs } }),
  ])
  return token
}

export async function findAckToken(connection: Connection, token: string): Promise<AckToken | null> {
  const found = await connection.query(
    'read',
    `select t.*, (extract(epoch from (t.expires_at - clock_timestamp())) * 1000)::bigint as left_ms, a.run_id as used_by
    from homeregion_control.ack_token t left join homeregion_control.acknowledgement a on a.token_hash = t.hash where t.hash = $1`,
    [tokenHash(token)],
  )
  const row = found.rows[0]
  if (row === undefined) return null
  return {
    planId: row.plan_id as string,
    keysSha256: row.keys_sha256 as string,
    estimateSha256: row.estimate_sha256 as string,
    boundMs: Number(row.bound_ms) === -1 ? 'any' : Number(row.bound_ms),
    leftMs: Number(row.left_ms),
    usedBy: row.used_by as string | null,
  }
}
