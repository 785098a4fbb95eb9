import { setTimeout as wait } from 'node:timers/promises'
import type pg from 'pg'
import { REGIONS, type SandboxRegion } from '../../sandbox/layout.ts'
import type { Rig } from '../rig/rig.ts'

export type WritersWatch = {
  /** One line for each moment at which two regions admitted a write of one key. */
  overlaps(): readonly string[]
  rounds(): number
  stop(): Promise<void>
}

// Each look holds the key's lock where it was admitted; with a pause between looks a drain is never kept waiting for long.
const PAUSE_MS = 15

/** Writes the keys in turn in both regions as the service's login, with both transactions open at once; rolled back always. */
export async function createWritersWatch(rig: Rig, keys: readonly string[]): Promise<WritersWatch> {
  const clients = await Promise.all(REGIONS.map(async region => ({ region, client: await rig.pg(region, 'app_writer') })))
  const overlaps: string[] = []
  let rounds = 0
  let stopping = false
  const loop = async () => {
    while (!stopping) {
      const key = keys[rounds % keys.length] ?? ''
      // Either region comes first in turn: the one that is asked second is the one that must refuse.
      const order = rounds % 2 === 0 ? clients : [...clients].reverse()
      rounds += 1
      const admitted = await admitting(order, key)
      if (admitted.length > 1) overlaps.push(`${key}: ${admitted.join(' and ')} admitted a write at the same time`)
      await wait(PAUSE_MS)
    }
  }
  const running = loop()
  return {
    overlaps: () => overlaps,
    rounds: () => rounds,
    stop: async () => {
      stopping = true
      await running
      await Promise.all(clients.map(async ({ client }) => await client.end()))
    },
  }
}

type Writer = { readonly region: SandboxRegion; readonly client: pg.Client }

/** Regions that admit a real write of the key. Both writes stand uncommitted at once: regions that are open one after the other do not look alike. */
export async function admitting(writers: readonly Writer[], key: string): Promise<readonly SandboxRegion[]> {
  const found: SandboxRegion[] = []
  try {
    for (const { region, client } of writers) if (await admitted(client, key)) found.push(region)
    return found
  } finally {
    await Promise.all(writers.map(async ({ client }) => await client.query('rollback').catch(() => undefined)))
  }
}

async function admitted(client: pg.Client, key: string): Promise<boolean> {
  await client.query('begin')
  await client.query(
    `select set_config('homeregion.epoch', coalesce((select epoch::text from homeregion.read($1)), ''), true), set_config('lock_timeout', '5s', true)`,
    [key],
  )
  try {
    await client.query(
      `insert into public.invoice (tenant_id, invoice_id, account_id, amount_cents) values ($1, gen_random_uuid()::text, 'probe', 1)`,
      [key],
    )
    return true
  } catch (error) {
    if (error instanceof Error && 'code' in error && String(error.code).startsWith('HR')) return false
    throw error
  }
}
