import type { Comparison, ControlPlane, KnownRecord } from '../domain/ports.ts'
import type { Engine } from './context.ts'
import { inTime } from './in-time.ts'
import { describeAhead, firstOf, stillAhead } from './regions-ahead.ts'

const PAGE = 2_000
const NAMED = 5

type Compared = Pick<Engine, 'region' | 'clock'> & { readonly controlPlane: Pick<ControlPlane, 'listOwnership' | 'ownership'> }

/**
 * Of the keys that the control plane gives to `home`, and of those that may be written there: of one that was registered and taken in the time that
 * was lost, only the regions know.
 */
export async function compareOwnership(parts: Compared, home: string, others: readonly string[]): Promise<Comparison> {
  const sources: readonly ((after: string | null) => Promise<readonly KnownRecord[]>)[] = [
    after => parts.controlPlane.listOwnership({ homeRegion: home, limit: PAGE, ...(after === null ? {} : { after }) }),
    after => parts.region(home).homeKeys({ after, limit: PAGE }),
  ]
  const silent = new Set<string>()
  if (others.length === 0) return { contradicted: null, silent: [] }
  for (const source of sources) {
    for (let after: string | null = null, full = true; full; ) {
      const page: readonly KnownRecord[] = await source(after)
      const asked = others.filter(other => !silent.has(other))
      const found = await Promise.all(asked.map(async other => ({ other, said: await contradiction(parts, other, page) })))
      for (const { other, said } of found) if (said === null) silent.add(other)
      const said = found.flatMap(f => f.said ?? [])
      if (said.length > 0) return { contradicted: said.join('; '), silent: [...silent] }
      after = page.at(-1)?.key ?? null
      full = page.length === PAGE
    }
  }
  return { contradicted: null, silent: [...silent] }
}

// A healthy region's lease runs out while a dark one is asked.
const ANSWER_MS = 1_000

/** All rows of the page that are ahead, not the first few: those may be moves that the control plane knows. null: no answer. */
async function contradiction(
  { controlPlane, region, clock }: Compared,
  other: string,
  page: readonly KnownRecord[],
): Promise<readonly string[] | null> {
  const ahead = await inTime({ clock }, ANSWER_MS, region(other).aheadOf(page, PAGE), null)
  if (ahead === null) return null
  const left = await stillAhead(controlPlane, ahead.rows)
  if (left.length === 0) return []
  const texts = left.map(({ row, record }) => describeAhead(other, row, record))
  return [firstOf(texts, NAMED)]
}
