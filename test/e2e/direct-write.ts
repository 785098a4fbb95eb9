import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import type { SandboxRegion } from '../../sandbox/layout.ts'
import type { Acknowledged } from '../../sandbox/load.ts'
import { ADDRESS_CHANGED } from '../../sandbox/service-account.ts'
import { payloadOf } from '../../src/service/envelope.ts'

/** A write as the service makes it, statement by statement, so that a test can stop between two of them. */
export type DirectWrite = {
  readonly key: string
  readonly region: SandboxRegion
  readonly accountId: string
  readonly idempotencyKey: string
  /** Presented to the boundary; null presents none. */
  readonly epoch: number | null
}

export type DirectAnswer = { readonly ack: Acknowledged; readonly sqlstate: null } | { readonly ack: null; readonly sqlstate: string }

export function directWrite(key: string, region: SandboxRegion, epoch: number | null, accountId = 'account-0'): DirectWrite {
  return { key, region, accountId, epoch, idempotencyKey: randomUUID() }
}

/** Epoch that the region's own boundary knows of the key; 0 where it knows none. */
export async function epochIn(client: pg.Client, key: string): Promise<number> {
  const { rows } = await client.query<{ epoch: number }>('select epoch::int as epoch from homeregion.read($1)', [key])
  return rows[0]?.epoch ?? 0
}

/** Everything but the commit: business row, outbox row, idempotency record. Returns what the commit would acknowledge. */
export async function perform(client: pg.Client, write: DirectWrite, begin = 'begin'): Promise<Acknowledged> {
  const sentAtMs = performance.now()
  await client.query(begin)
  return await performInside(client, write, sentAtMs)
}

/** The same inside a transaction that is open already. */
export async function performInside(client: pg.Client, write: DirectWrite, sentAtMs = performance.now()): Promise<Acknowledged> {
  const { key, region, accountId, idempotencyKey } = write
  const epoch = write.epoch ?? (await epochIn(client, key))
  if (write.epoch !== null) await client.query(`select set_config('homeregion.epoch', $1, true)`, [String(epoch)])
  const { rows } = await client.query<{ version: number }>(
    `insert into public.account as a (tenant_id, account_id, version, billing_address) values ($1, $2, 1, 'direct')
     on conflict (tenant_id, account_id) do update set version = a.version + 1 returning version::int as version`,
    [key, accountId],
  )
  const version = rows[0]?.version ?? 0
  const response = { tenant: key, accountId, version, epoch, region }
  await client.query(
    `insert into public.outbox (event_id, tenant_id, aggregate_type, aggregate_id, event_type, source_region, home_region, owner_epoch,
       aggregate_version, occurred_at, payload)
     values ($1, $2, 'account', $3, $4, $5, $5, $6, $7, clock_timestamp(), $8)`,
    [
      randomUUID(),
      key,
      accountId,
      ADDRESS_CHANGED,
      region,
      epoch,
      version,
      JSON.stringify(payloadOf({ accountId, version, address: 'direct' }, { id: idempotencyKey, response })),
    ],
  )
  await client.query('insert into public.idempotency (tenant_id, idempotency_key, response) values ($1, $2, $3)', [
    key,
    idempotencyKey,
    JSON.stringify(response),
  ])
  const now = performance.now()
  return {
    idempotencyKey,
    key,
    accountId,
    version,
    epoch,
    region,
    replayed: false,
    sentAtMs,
    lastSentAtMs: sentAtMs,
    ackedAtMs: now,
    attempts: 1,
  }
}

/** One whole write; a refusal is an answer, with its SQLSTATE. */
export async function commitDirect(client: pg.Client, write: DirectWrite): Promise<DirectAnswer> {
  try {
    const ack = await perform(client, write)
    await client.query('commit')
    return { ack: { ...ack, ackedAtMs: performance.now() }, sqlstate: null }
  } catch (error) {
    await client.query('rollback').catch(() => undefined)
    return { ack: null, sqlstate: sqlstateOf(error) }
  }
}

export function sqlstateOf(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : String(error)
}
