import { HomeregionError } from '../domain/errors.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { ControlPlane, RegionDatabase } from '../domain/ports.ts'

/** Rows a statement: enough to be quick, few enough to hold no table for long. */
const PIECE = 5_000

/**
 * Tells every region's boundary about keys that the control plane holds as ACTIVE. The authority comes first (its commit is behind us), then
 * the regions that are not home, then the home, which alone becomes writable. Repeatable: what a region knows already stays as it is.
 * @throws `needs-human` naming the regions that were not told; the keys are registered then, and not writable there
 */
export async function tellRegions(records: readonly OwnershipRecord[], regions: readonly RegionDatabase[]): Promise<void> {
  const settled = records.filter(r => r.state === 'ACTIVE')
  const tell = async (region: RegionDatabase, rows: readonly OwnershipRecord[]) => {
    for (let i = 0; i < rows.length; i += PIECE)
      await region.register(rows.slice(i, i + PIECE).map(r => ({ key: r.key, homeRegion: r.homeRegion, epoch: r.epoch })))
  }
  const copies = await Promise.allSettled(
    regions.map(region =>
      tell(
        region,
        settled.filter(r => r.homeRegion !== region.region),
      ),
    ),
  )
  const homes = await Promise.allSettled(
    regions.map((region, i) =>
      copies[i]?.status === 'fulfilled'
        ? tell(
            region,
            settled.filter(r => r.homeRegion === region.region),
          )
        : Promise.reject(reasonOf(copies[i])),
    ),
  )
  const failed = homes.flatMap((answer, i) =>
    answer.status === 'rejected'
      ? [`${regions[i]?.region ?? ''}: ${answer.reason instanceof Error ? answer.reason.message : String(answer.reason)}`]
      : [],
  )
  if (failed.length === 0) return
  throw new HomeregionError('needs-human', {
    fact: `${failed.length} of ${regions.length} regions could not be told about the keys: ${failed.join('; ')}`,
    state: 'The keys are registered in the control plane; a region that does not know them refuses their writes.',
    next: 'homeregion key sync',
  })
}

/** All registered keys, page by page. */
export async function syncRegions(controlPlane: ControlPlane, regions: readonly RegionDatabase[]): Promise<number> {
  let told = 0
  for (let after: string | undefined; ; ) {
    const page = await controlPlane.listOwnership({ limit: PIECE, ...(after === undefined ? {} : { after }) })
    await tellRegions(page, regions)
    told += page.length
    after = page.at(-1)?.key
    if (page.length < PIECE || after === undefined) return told
  }
}

function reasonOf(answer: PromiseSettledResult<void> | undefined): Error {
  return answer?.status === 'rejected' && answer.reason instanceof Error ? answer.reason : new Error('not told')
}
