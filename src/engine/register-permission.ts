import type { BoundaryRow } from '../domain/boundary.ts'
import { HomeregionError } from '../domain/errors.ts'
import { showKey } from '../domain/key.ts'
import { epochAfter } from '../domain/ownership.ts'
import type { ControlPlane, KnownRecord, RegionDatabase } from '../domain/ports.ts'
import { batches } from './lost-keys.ts'
import { describeAhead, stillAhead } from './regions-ahead.ts'

/** Keys in one question to a region. */
const PIECE = 5_000
/** Enough to see what kind of trouble it is. */
const NAMED = 3
const FIRST_EPOCH = epochAfter('register', 0)

export type Registration = { readonly key: string; readonly homeRegion: string }

type Region = Pick<RegionDatabase, 'region' | 'aheadOf'>

type Question = {
  readonly controlPlane: Pick<ControlPlane, 'ownership'>
  readonly regions: readonly Region[]
  /** It may be writing a key that nobody registered. */
  readonly defaultHome: string | null
}

/**
 * Whether registering the keys could make a second writer: a region may have one as the default home, or because the control plane has forgotten
 * that it was registered. Another region that does not answer does not count: it refuses a key that it does not know.
 * @throws `key-exists`, `region-unreachable` when it is the default home that does not answer
 */
export async function requireRegisterAllowed(question: Question, keys: readonly Registration[]): Promise<void> {
  const { controlPlane, regions, defaultHome } = question
  const fresh = keys.map(k => ({ ...k, epoch: FIRST_EPOCH }))
  const answers = await Promise.allSettled(regions.map(async region => ({ region: region.region, rows: await firstAhead(region, fresh) })))
  for (const [i, answer] of answers.entries()) {
    if (answer.status === 'rejected') {
      const silent = regions[i]?.region
      if (silent === defaultHome && keys.some(k => k.homeRegion !== silent)) throw notAsked(silent, answer.reason)
      continue
    }
    const { region, rows } = answer.value
    // What another operator registered meanwhile, the control plane refuses to register again.
    const left = await stillAhead(controlPlane, rows)
    if (left.length === 0) continue
    throw new HomeregionError('key-exists', {
      fact: left.map(({ row, record }) => describeAhead(region, row, record)).join('; '),
      state: 'Nothing was registered.',
      next: wayOut(left[0], keys),
    })
  }
}

/** The first few are enough: one that is not a contradiction is registered by now, and the control plane refuses all of them for it. */
async function firstAhead(region: Region, records: readonly KnownRecord[]): Promise<readonly BoundaryRow[]> {
  for (const piece of batches(records, PIECE)) {
    const { rows } = await region.aheadOf(piece, NAMED)
    if (rows.length > 0) return rows
  }
  return []
}

/** A key that never moved can be registered where it is written; the epochs of others only the lost records can give back. */
function wayOut(found: Awaited<ReturnType<typeof stillAhead>>[number] | undefined, keys: readonly Registration[]): string {
  if (found === undefined || found.record !== undefined || found.row.epoch !== FIRST_EPOCH) return 'homeregion doctor   (docs/FAILOVER.md)'
  const { key, homeRegion } = found.row
  const wanted = keys.find(k => k.key === key)?.homeRegion ?? 'REGION'
  return `homeregion key add ${showKey(key)} --home ${homeRegion}   (then homeregion transfer ${showKey(key)} --to ${wanted})`
}

function notAsked(region: string, cause: unknown): HomeregionError {
  const text = {
    fact: `${region}, the default home, may be writing the keys, and does not say: ${cause instanceof Error ? cause.message : String(cause)}`,
    state: 'Nothing was registered.',
    next: 'homeregion doctor',
  }
  return new HomeregionError('region-unreachable', text, { cause, retriable: true })
}
