import { showKey } from '../domain/key.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { RegionDatabase } from '../domain/ports.ts'
import { describeAhead, firstOf, stillAhead } from '../engine/regions-ahead.ts'
import type { World } from './context.ts'
import type { Finding } from './finding.ts'

const PAGE = 2_000
const NAMED = 5

type Parts = {
  readonly controlPlane: Pick<World['controlPlane'], 'listOwnership' | 'ownership'>
  readonly region: (name: string) => Pick<RegionDatabase, 'aheadOf' | 'homeKeys'>
}

/** A key, and what is to be said of it. */
type Said = { readonly key: string; readonly text: string }

/** Whether the region knows of a move, an epoch or a key that the control plane has forgotten; a finding for each, with its keys. */
export async function ownershipFindings(parts: Parts, name: string, defaultHome: string | null): Promise<readonly Finding[]> {
  const { compared, moved, later } = await compare(parts, name)
  // Keys that nobody registered live in their default home's boundary alone.
  const unregistered = defaultHome === name ? [] : await unregisteredHome(parts, name)
  const about = { place: `${name} database`, check: 'ownership' }
  const found = [
    { what: `the control plane has forgotten a move of ${keys(moved)}`, said: moved },
    { what: `the control plane is behind: ${keys(later)} under a later epoch`, said: later },
    { what: `the control plane does not know ${keys(unregistered)} at home here`, said: unregistered },
  ].filter(({ said }) => said.length > 0)
  if (found.length === 0) return [{ ...about, verdict: 'pass', detail: `knows nothing later of ${compared} keys than the control plane` }]
  return found.map(({ what, said }) => ({
    ...{
      ...about,
      verdict: 'fail',
      detail: `${what}: ${firstOf(
        said.map(s => s.text),
        NAMED,
      )}   (docs/FAILOVER.md)`,
      keys: said.map(s => s.key),
    },
  }))
}

async function compare({ controlPlane, region }: Parts, name: string) {
  const moved: Said[] = []
  const later: Said[] = []
  let compared = 0
  for (let after: string | undefined; ; ) {
    const page: readonly OwnershipRecord[] = await controlPlane.listOwnership({ limit: PAGE, ...(after === undefined ? {} : { after }) })
    const found = await region(name).aheadOf(page, PAGE)
    for (const { row, record } of await stillAhead(controlPlane, found.rows))
      (row.homeRegion === record?.homeRegion ? later : moved).push({ key: row.key, text: describeAhead(name, row, record) })
    compared += page.length
    after = page.at(-1)?.key
    if (page.length < PAGE) return { compared, moved, later }
  }
}

/** A key is registered before its home is told of it, so a record that is not there when it is looked for never was, or was lost. */
async function unregisteredHome({ controlPlane, region }: Parts, name: string): Promise<readonly Said[]> {
  const unregistered: Said[] = []
  for (let after: string | null = null; ; ) {
    const page = await region(name).homeKeys({ after, limit: PAGE })
    const known = new Set((await controlPlane.ownership(page.map(row => row.key))).map(record => record.key))
    unregistered.push(
      ...page.filter(row => !known.has(row.key)).map(({ key, epoch }) => ({ key, text: `${showKey(key)} (epoch ${epoch})` })),
    )
    after = page.at(-1)?.key ?? null
    if (page.length < PAGE) return unregistered
  }
}

function keys({ length }: readonly Said[]): string {
  return `${length} ${length === 1 ? 'key' : 'keys'}`
}
