import type { OwnershipRecord } from '../domain/ownership.ts'
import { describeAhead, stillAhead } from '../engine/regions-ahead.ts'
import type { World } from './context.ts'
import type { Finding } from './finding.ts'

const PAGE = 2_000
const NAMED = 5

type Parts = Pick<World, 'region'> & { readonly controlPlane: Pick<World['controlPlane'], 'listOwnership' | 'ownership'> }

/** Whether the region knows a move that the control plane has forgotten, of all keys that it has on record. */
export async function ownershipFinding(parts: Parts, name: string): Promise<Finding> {
  const about = { place: `${name} database`, check: 'ownership' }
  const { compared, ahead } = await compare(parts, name)
  if (ahead.length === 0) return { ...about, verdict: 'pass', detail: `knows nothing later of ${compared} keys than the control plane` }
  const more = ahead.length > NAMED ? ` +${ahead.length - NAMED} more` : ''
  const what = `the control plane has forgotten a move of ${ahead.length} ${ahead.length === 1 ? 'key' : 'keys'}`
  return { ...about, verdict: 'fail', detail: `${what}: ${ahead.slice(0, NAMED).join('; ')}${more}   (docs/FAILOVER.md)` }
}

async function compare(
  { controlPlane, region }: Parts,
  name: string,
): Promise<{ readonly compared: number; readonly ahead: readonly string[] }> {
  const ahead: string[] = []
  let compared = 0
  for (let after: string | undefined; ; ) {
    const page: readonly OwnershipRecord[] = await controlPlane.listOwnership({ limit: PAGE, ...(after === undefined ? {} : { after }) })
    const found = await region(name).aheadOf(page, PAGE)
    const left = await stillAhead(controlPlane, found.rows)
    ahead.push(...left.map(({ row, record }) => describeAhead(name, row, record)))
    compared += page.length
    after = page.at(-1)?.key
    if (page.length < PAGE) return { compared, ahead }
  }
}
