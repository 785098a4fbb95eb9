import { existsSync } from 'node:fs'
import type pg from 'pg'
import { createBoundaryFence } from '../../src/adapters/postgres-region/fences/boundary.ts'
import type { Fence } from '../../src/domain/fence.ts'
import { type RegionFixture, secrets } from './boundary-fixture.ts'

export const VERSIONS = existsSync('/usr/lib/postgresql/15/bin/postgres') ? ([18, 15] as const) : ([18] as const)
export const INSERT = `insert into account (tenant_id, account_id, version, billing_address) values ($1, gen_random_uuid()::text, 1, 'x')`
export const CAUSE = { reason: 'region-a moves to region-b', by: 'op', runId: 'run-1' }

export function boundaryFence(f: RegionFixture, callTimeoutMs: number): Fence {
  const config = { ...f.config, policy: { ...f.config.policy, callTimeoutMs } }
  return createBoundaryFence(f.region, config, secrets, () => Promise.resolve())
}

/** SQLSTATE of what fails, null for what does not. */
export async function codeOf(work: Promise<unknown>): Promise<string | null> {
  return await work.then(
    () => null,
    (error: unknown) => (error as pg.DatabaseError).code ?? String(error),
  )
}

/** Until its commit can be read. */
export async function stands(fence: Fence): Promise<void> {
  const end = performance.now() + 4000
  while ((await fence.status()).state === 'lifted') if (performance.now() > end) throw new Error('the fence did not stand in time')
}
