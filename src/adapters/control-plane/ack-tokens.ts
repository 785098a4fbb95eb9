import { createHash, randomInt } from 'node:crypto'
import type { AckToken } from '../../domain/failover.ts'
import type { RunLease } from '../../domain/journal.ts'
import type { Connection, Row, Statement } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { ackTokenRefused } from './forced-refusal.ts'
import { REFUSAL, sqlstate, violated } from './refusals.ts'
import { holdRun } from './region-leases.ts'
import { underLease } from './run-lease.ts'
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

const TOKEN = `select t.*, (extract(epoch from (t.expires_at - clock_timestamp())) * 1000)::bigint as left_ms, u.run_id as used_by, t.issued_by = session_user as mine
  from homeregion_control.ack_token t left join homeregion_control.redeemed_token u on u.hash = t.hash`

export async function findAckToken(connection: Connection, hash: string): Promise<AckToken | null> {
  const found = await connection.query('read', `${TOKEN} where t.hash = $1`, [hash])
  return ackToken(found.rows[0])
}

export async function lastAckTokenOf(connection: Connection, runId: string): Promise<AckToken | null> {
  const found = await connection.query('read', `${TOKEN} where u.run_id = $1 order by u.at desc limit 1`, [runId])
  return ackToken(found.rows[0])
}

/** The row that says so is there once for each token, so that of two runs one has it. */
export async function redeemAckToken(connection: Connection, lease: RunLease, hash: string): Promise<void> {
  const statements: readonly Statement[] = [
    requireVersion(),
    holdRun(lease),
    {
      sql: `insert into homeregion_control.redeemed_token (hash, run_id, plan_id, expires_at)
select t.hash, r.id, r.plan_id, t.expires_at from homeregion_control.ack_token t, homeregion_control.run r where t.hash = $1 and r.id = $2
on conflict (hash) do nothing`,
      parameters: [hash, lease.runId],
    },
    {
      sql: `select homeregion_control.require(exists (
  select 1 from homeregion_control.redeemed_token where hash = $1 and run_id = $2), '${REFUSAL.tokenUsed}', 'another run has the token')`,
      parameters: [hash, lease.runId],
    },
    ...appendAudit({ event: 'ack-token-used', runId: lease.runId, key: null, detail: { hash } }),
  ]
  try {
    await underLease(connection, lease, async () => await connection.transaction('write', statements))
  } catch (error) {
    const refused = sqlstate(error) === REFUSAL.tokenUsed || violated(error)?.startsWith('redeemed_token_') === true
    if (!refused) throw error
    throw ackTokenRefused(problem(await findAckToken(connection, hash), lease.runId, violated(error)), error)
  }
}

function problem(token: AckToken | null, runId: string, constraint: string | null): string {
  if (token === null) return 'the acknowledgement token was never issued'
  if (token.usedBy !== null && token.usedBy !== runId) return `the acknowledgement token was used already, by run ${token.usedBy}`
  if (constraint === 'redeemed_token_login')
    return `the acknowledgement token was given to ${token.issuedTo}, and is of use to no other login`
  return constraint === 'redeemed_token_in_time' ? 'the acknowledgement token is over' : 'the acknowledgement token is for another plan'
}

function ackToken(row: Row | undefined): AckToken | null {
  if (row === undefined) return null
  return {
    hash: row.hash as string,
    planId: row.plan_id as string,
    keysSha256: row.keys_sha256 as string,
    estimateSha256: row.estimate_sha256 as string,
    boundMs: Number(row.bound_ms) === -1 ? 'any' : Number(row.bound_ms),
    leftMs: Number(row.left_ms),
    usedBy: row.used_by as string | null,
    issuedTo: row.issued_by as string,
    mine: row.mine === true,
  }
}
