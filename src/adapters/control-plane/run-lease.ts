import { HomeregionError } from '../../domain/errors.ts'
import type { Holder, RunLease } from '../../domain/journal.ts'
import type { Connection, Statement } from '../postgres/connection.ts'
import { appendAudit } from './audit-chain.ts'
import { isoTime } from './ownership-records.ts'
import { REFUSAL, sqlstate } from './refusals.ts'
import { requireVersion } from './schema-version.ts'

/**
 * Locks the run and extends its lease, or raises: whatever follows in the transaction happens under a current token or not at all.
 * An expired lease is still good while nobody has taken the run: the token decides, the time only says when others may.
 */
export function holdLease(lease: RunLease, leaseMs: number): Statement {
  return {
    sql: `with held as (
  update homeregion_control.run set lease_until = clock_timestamp() + $3::double precision * interval '1 millisecond'
  where id = $1 and token = $2 and open returning id
)
select homeregion_control.require((select count(*) from held) = 1, '${REFUSAL.lease}', 'the run is not held under this token')`,
    parameters: [lease.runId, lease.token, leaseMs],
  }
}

/** `leaseMs` 0 ends the lease at once, so that the next operator need not wait for it; the run stays open. */
export async function renewLease(connection: Connection, lease: RunLease, leaseMs: number): Promise<void> {
  await underLease(connection, lease, async () => {
    const held = holdLease(lease, leaseMs)
    await connection.query('write', held.sql, held.parameters)
  })
}

/** Whose run may be taken: one whose lease is over (or that is the holder's own), any, or only the holder's own. */
type Right = 'free' | 'force' | 'own'

export async function takeLease(
  connection: Connection,
  runId: string,
  holder: Holder,
  right: Exclude<Right, 'own'>,
  leaseMs: number,
): Promise<RunLease> {
  return await take(connection, runId, holder, right, null, leaseMs)
}

/**
 * A holder that was superseded must not come back, also when the one who superseded it is dead and its lease is over. By the holder and not by
 * the token alone: the answer that would have told the current one may have been lost.
 */
export async function retakeLease(connection: Connection, lease: RunLease, holder: Holder, leaseMs: number): Promise<RunLease> {
  return await take(connection, lease.runId, holder, 'own', lease.token, leaseMs)
}

// A second or two of the server's time; further apart than that no replica is.
const DRAWN_AT_MOST = 10_000_000

/** A sequence cannot be set by whoever may only draw from it. */
export async function drawTokens(connection: Connection, above: number): Promise<void> {
  await connection.query(
    'write',
    `with first as (select nextval('homeregion_control.run_token') as token)
select case when token <= $1::bigint then (select max(nextval('homeregion_control.run_token')) from generate_series(token, least($1::bigint, token + $2)))
  else token end from first`,
    [above, DRAWN_AT_MOST],
  )
}

/** A new token for an open run. The row lock orders takers; the sequence is drawn again by the one who waited. */
async function take(
  connection: Connection,
  runId: string,
  holder: Holder,
  right: Right,
  formerToken: number | null,
  leaseMs: number,
): Promise<RunLease> {
  const takes: Statement = {
    sql: `with taken as (
  update homeregion_control.run set token = nextval('homeregion_control.run_token'), holder_host = $2, holder_pid = $3, holder_user = $4,
    lease_until = clock_timestamp() + $6::double precision * interval '1 millisecond'
  where id = $1 and open
    and ($5::text = 'force' or ($5::text = 'free' and (lease_until is null or lease_until <= clock_timestamp()))
      or (holder_host = $2 and holder_pid = $3 and holder_user = $4))
  returning token
)
select homeregion_control.require((select count(*) from taken) = 1, '${REFUSAL.lease}', 'the run cannot be taken') as taken,
  (select token from taken) as token`,
    parameters: [runId, holder.host, holder.pid, holder.user, right, leaseMs],
  }
  const audit = appendAudit({
    event: right === 'force' ? 'run-taken-by-force' : 'run-taken',
    runId,
    key: null,
    detail: { host: holder.host, pid: holder.pid, user: holder.user },
  })
  try {
    const answers = await connection.transaction('write', [requireVersion(), takes, ...audit])
    return { runId, token: Number(answers[1]?.rows[0]?.token) }
  } catch (error) {
    if (error instanceof HomeregionError && error.code === 'outcome-unknown')
      throw new HomeregionError(
        error.code,
        {
          fact: error.text.fact,
          state: `Whether this command holds ${runId} now is not known; it changed nothing else.`,
          next: `homeregion resume ${runId}`,
        },
        { cause: error },
      )
    if (sqlstate(error) !== REFUSAL.lease) throw error
    throw await refusedLease(connection, runId, formerToken, error)
  }
}

/** Runs a change under a lease and says why when the lease is what refused it. */
export async function underLease<T>(connection: Connection, lease: RunLease, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (sqlstate(error) !== REFUSAL.lease) throw error
    throw await refusedLease(connection, lease.runId, lease.token, error)
  }
}

/** A run that lost one of its keys to a forced failover is closed as a whole. */
const NOT_TAKEN = 'Keys of it that the other did not take are where they were.'

/** The refusal changed nothing, so this second look cannot be wrong about the past: it only finds the words. */
async function refusedLease(connection: Connection, runId: string, token: number | null, cause: unknown): Promise<HomeregionError> {
  const found = await connection.query(
    'read',
    `select state, open, token, holder_host, holder_pid, holder_user, ended_at,
      (extract(epoch from (lease_until - clock_timestamp())) * 1000)::bigint as left_ms,
      (select string_agg(distinct f.run_id, ', ') from homeregion_control.run_key k join homeregion_control.forced_failover f on f.id = k.seized_by
        where k.run_id = r.id) as seized_by
    from homeregion_control.run r where id = $1`,
    [runId],
  )
  const run = found.rows[0]
  const nothing = 'This call changed nothing.'
  if (run === undefined)
    return new HomeregionError(
      'unknown-run',
      { fact: `the control plane has no run ${runId}`, state: nothing, next: 'homeregion run list' },
      { cause },
    )
  const holder = `${String(run.holder_user)}@${String(run.holder_host)} pid ${String(run.holder_pid)}`
  const seizedBy = typeof run.seized_by === 'string' ? run.seized_by : null
  const fields = { runId, state: run.state, token: Number(run.token), holder }
  const next = `homeregion run show ${runId}`
  if (run.open !== true)
    return new HomeregionError(
      'run-closed',
      {
        fact: `run ${runId} is closed: ${String(run.state)}${seizedBy === null ? '' : ` by ${seizedBy}, a forced failover,`} since ${isoTime(run.ended_at)}`,
        ...(seizedBy === null ? { state: nothing, next } : { state: `${nothing} ${NOT_TAKEN}`, next: 'homeregion status' }),
      },
      { cause, fields },
    )
  if (token !== null && Number(run.token) !== token)
    return new HomeregionError(
      'superseded',
      { fact: `run ${runId} was taken over by ${holder}: token ${Number(run.token)} is current, ours was ${token}`, state: nothing, next },
      { cause, fields },
    )
  return new HomeregionError(
    'run-leased',
    {
      fact: `run ${runId} is held by ${holder}; its lease ends in ${Math.max(0, Number(run.left_ms))} ms unless it is renewed`,
      state: nothing,
      next,
    },
    { cause, retriable: true, fields: { ...fields, leaseLeftMs: Number(run.left_ms) } },
  )
}
