import type { BoundaryRow } from '../domain/boundary.ts'
import { HomeregionError } from '../domain/errors.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { ControlPlane, RegionDatabase } from '../domain/ports.ts'
import { batches } from './lost-keys.ts'
import { describeAhead, firstOf, stillAhead } from './regions-ahead.ts'
import { type Registration, requireRegisterAllowed } from './register-permission.ts'

/** Rows a statement: enough to be quick, few enough to hold no table for long. */
const PIECE = 5_000
/** Enough to see what kind of trouble it is. */
const NAMED = 3

type Region = Pick<RegionDatabase, 'region' | 'aheadOf' | 'register'>

export type RegisterParts = {
  readonly controlPlane: Pick<ControlPlane, 'register' | 'ownership' | 'listOwnership'>
  readonly regions: readonly Region[]
  readonly defaultHome: string | null
}

type Otherwise = { readonly region: string; readonly rows: readonly BoundaryRow[] }

/**
 * Registers the keys in the control plane, all or none, and tells every region.
 * @throws `key-exists`, `region-unreachable`: nothing was registered; and as `tellRegions`
 */
export async function registerEverywhere(parts: RegisterParts, keys: readonly Registration[]): Promise<readonly OwnershipRecord[]> {
  await requireRegisterAllowed(parts, keys)
  const records = await parts.controlPlane.register(keys)
  await tellRegions(parts, records)
  return records
}

/** All registered keys, page by page. */
export async function syncRegions(parts: RegisterParts): Promise<number> {
  let told = 0
  for (let after: string | undefined; ; ) {
    const page = await parts.controlPlane.listOwnership({ limit: PIECE, ...(after === undefined ? {} : { after }) })
    await tellRegions(parts, page)
    told += page.length
    after = page.at(-1)?.key
    if (page.length < PIECE || after === undefined) return told
  }
}

/**
 * Tells every region's boundary about keys that the control plane holds as ACTIVE. The authority comes first (its commit is behind us), then
 * the regions that are not home, then the home, which alone becomes writable. Repeatable: what a region knows already stays as it is.
 * @throws `needs-human` naming what regions know otherwise, or those that were not told; the keys are registered then, and not writable there
 */
async function tellRegions({ controlPlane, regions, defaultHome }: RegisterParts, records: readonly OwnershipRecord[]): Promise<void> {
  const settled = records.filter(r => r.state === 'ACTIVE')
  const otherwise: Otherwise[] = []
  const tell = async (region: Region, rows: readonly OwnershipRecord[]) => {
    for (const piece of batches(rows, PIECE)) otherwise.push({ region: region.region, rows: await tellPiece(region, piece) })
  }
  const copies = await Promise.allSettled(
    regions.map(
      async region =>
        await tell(
          region,
          settled.filter(r => r.homeRegion !== region.region),
        ),
    ),
  )
  await requireAgreement(controlPlane, otherwise)
  const untold = new Map(regions.flatMap(({ region }, i) => (copies[i]?.status === 'rejected' ? [[region, textOf(copies[i].reason)]] : [])))
  // Until it is told whose the keys are, it may be writing them as its own.
  const lazy = defaultHome !== null && untold.has(defaultHome)
  const homes = await Promise.allSettled(
    regions.map(async region => {
      const why = untold.get(region.region) ?? (lazy ? `not before ${defaultHome}, the default home` : undefined)
      if (why !== undefined) throw new Error(why)
      await tell(
        region,
        settled.filter(r => r.homeRegion === region.region),
      )
    }),
  )
  await requireAgreement(controlPlane, otherwise)
  const failed = regions.flatMap(({ region }, i) => (homes[i]?.status === 'rejected' ? [`${region}: ${textOf(homes[i].reason)}`] : []))
  if (failed.length === 0) return
  throw new HomeregionError('needs-human', {
    fact: `${failed.length} of ${regions.length} regions could not be told about the keys: ${failed.join('; ')}`,
    state: `The keys are registered in the control plane; a region that does not know them refuses their writes${lazy ? `, but for ${defaultHome}` : ''}.`,
    next: 'homeregion key sync',
  })
}

/** Rows of the region that are not what it was told. */
async function tellPiece(region: Region, records: readonly OwnershipRecord[]): Promise<readonly BoundaryRow[]> {
  const sent = new Map(records.map(({ key, homeRegion, epoch }) => [key, { key, homeRegion, epoch }]))
  const rows = await region.register([...sent.values()])
  return rows.filter(({ key, homeRegion, epoch }) => homeRegion !== sent.get(key)?.homeRegion || epoch !== sent.get(key)?.epoch)
}

/** A key may have moved since its record was read, and a region that was not told of a move yet is only behind. */
async function requireAgreement(controlPlane: RegisterParts['controlPlane'], otherwise: readonly Otherwise[]): Promise<void> {
  const said: string[] = []
  for (const { region, rows } of otherwise)
    said.push(...(await stillAhead(controlPlane, rows)).map(({ row, record }) => describeAhead(region, row, record)))
  if (said.length === 0) return
  throw new HomeregionError('needs-human', {
    fact: firstOf(said, NAMED),
    state: 'The keys are registered in the control plane; each region keeps what it knew of these, and no other was opened for them.',
    next: 'homeregion doctor   (docs/FAILOVER.md)',
  })
}

function textOf(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason)
}
