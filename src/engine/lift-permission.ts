import type { BoundaryRow } from '../domain/boundary.ts'
import { HomeregionError, isHomeregionError } from '../domain/errors.ts'
import { showKey } from '../domain/key.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { ControlPlane, RegionDatabase } from '../domain/ports.ts'

/** Keys compared in one round trip to each side. */
const PAGE = 5_000
/** Enough to see what kind of trouble it is. */
const NAMED = 10

export type LiftPermission = { readonly owned: number; readonly compared: number }

type Question = {
  readonly controlPlane: Pick<ControlPlane, 'countOwnership' | 'ownership'>
  readonly database: Pick<RegionDatabase, 'homeKeys'>
  readonly region: string
  /** It is about to be given its first key. Drops that one requirement, never the comparison. */
  readonly asTarget: boolean
  readonly defaultHome: string | null
}

/**
 * Whether opening the region could make a second writer: every key that would be writable there is compared with the authority. A move that
 * runs meanwhile cannot slip through, because it has to close the key in this same region before another one opens it.
 * @throws `lift-refused`, `control-plane-unreachable`, `region-unreachable`
 */
export async function requireLiftAllowed(question: Question): Promise<LiftPermission> {
  const { controlPlane, database, region, asTarget } = question
  const owned = (await asked(region, () => controlPlane.countOwnership()))
    .filter(c => c.homeRegion === region)
    .reduce((sum, c) => sum + c.keys, 0)
  if (owned === 0 && !asTarget)
    throw refused(
      region,
      `the control plane says that ${region} owns no key`,
      'the same command with --as-target, if it is about to receive one',
    )
  let compared = 0
  let after: string | null = null
  const contradicted: string[] = []
  for (;;) {
    const page: readonly BoundaryRow[] = await database.homeKeys({ after, limit: PAGE })
    const found = await asked(region, () => controlPlane.ownership(page.map(row => row.key)))
    const records = new Map(found.map(record => [record.key, record]))
    contradicted.push(...page.flatMap(row => contradiction(row, records.get(row.key) ?? null, question)))
    compared += page.length
    after = page.at(-1)?.key ?? null
    if (page.length < PAGE) break
  }
  if (contradicted.length === 0) return { owned, compared }
  const more = contradicted.length > NAMED ? ` +${contradicted.length - NAMED} more` : ''
  throw refused(
    region,
    `${contradicted.length} of ${compared} keys would be writable in ${region} against the control plane: ${contradicted.slice(0, NAMED).join('; ')}${more}`,
    'homeregion doctor; the boundary of the region has to be corrected first',
  )
}

function contradiction(row: BoundaryRow, record: OwnershipRecord | null, { region, defaultHome }: Question): readonly string[] {
  const key = showKey(row.key)
  // Keys that nobody registered live in their default home's boundary alone.
  if (record === null) return defaultHome === region ? [] : [`${key} is not registered`]
  if (record.homeRegion !== region) return [`${key} is at home in ${record.homeRegion} (epoch ${record.epoch})`]
  if (record.epoch !== row.epoch) return [`${key} has epoch ${record.epoch} there, ${row.epoch} here`]
  return record.state === 'ACTIVE' || record.state === 'DRAINING' ? [] : [`${key} is ${record.state}`]
}

/** The region itself may not answer for who owns it. */
async function asked<T>(region: string, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask()
  } catch (error) {
    if (!isHomeregionError(error)) throw error
    const state = `No fence of ${region} was lifted: only the control plane can say that it may be written.`
    throw new HomeregionError(error.code, { ...error.text, state }, { cause: error, retriable: error.retriable, fields: error.fields })
  }
}

function refused(region: string, fact: string, next: string): HomeregionError {
  return new HomeregionError('lift-refused', { fact, state: `No further fence of ${region} was lifted; nothing else was changed.`, next })
}
