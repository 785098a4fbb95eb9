import type { BoundaryRow } from '../domain/boundary.ts'
import { HomeregionError, isHomeregionError } from '../domain/errors.ts'
import { showKey } from '../domain/key.ts'
import type { OwnershipRecord } from '../domain/ownership.ts'
import type { ControlPlane, RegionDatabase } from '../domain/ports.ts'
import { describeAhead, firstOf, stillAhead } from './regions-ahead.ts'

/** Keys compared in one round trip to each side. */
const PAGE = 5_000
/** Enough to see what kind of trouble it is. */
const NAMED = 10

type Other = Pick<RegionDatabase, 'region' | 'aheadOf'>

export type LiftPermission = {
  readonly owned: number
  readonly compared: number
  /** Other regions that did not answer: what they know is not known. */
  readonly silent: readonly string[]
}

type Question = {
  readonly controlPlane: Pick<ControlPlane, 'countOwnership' | 'ownership'>
  readonly database: Pick<RegionDatabase, 'homeKeys'>
  readonly region: string
  /** Every other region with a database of its own: what the control plane has forgotten, one of them may know. */
  readonly others: readonly Other[]
  /** It is about to be given its first key. Drops that one requirement, never the comparison. */
  readonly asTarget: boolean
  readonly defaultHome: string | null
}

/**
 * Whether opening the region could make a second writer: every key that would be writable there is compared with the authority, and with
 * the regions that answer. A move that runs meanwhile cannot slip through, because it has to close the key in this same region before another
 * one opens it.
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
  const ahead: string[] = []
  let asking = question.others
  for (;;) {
    const page: readonly BoundaryRow[] = await database.homeKeys({ after, limit: PAGE })
    const found = await asked(region, () => controlPlane.ownership(page.map(row => row.key)))
    const records = new Map(found.map(record => [record.key, record]))
    contradicted.push(...page.flatMap(row => contradiction(row, records.get(row.key) ?? null, question)))
    const seen = await Promise.all(asking.map(async other => await aheadThere(question, other, page)))
    ahead.push(...seen.flatMap(texts => texts ?? []))
    // One that is dark costs its whole time once, not once a page.
    asking = asking.filter((_, i) => seen[i] !== null)
    compared += page.length
    after = page.at(-1)?.key ?? null
    if (page.length < PAGE) break
  }
  if (contradicted.length > 0)
    throw refused(
      region,
      `${contradicted.length} of ${compared} keys would be writable in ${region} against the control plane: ${firstOf(contradicted, NAMED)}`,
      'homeregion doctor; the boundary of the region has to be corrected first',
    )
  if (ahead.length > 0)
    throw refused(region, `the control plane has forgotten what other regions know: ${firstOf(ahead, NAMED)}`, 'homeregion doctor')
  return { owned, compared, silent: question.others.filter(other => !asking.includes(other)).map(other => other.region) }
}

/** For whoever is told of the permission. */
export function unknownOf({ silent }: LiftPermission): string {
  return silent.length === 0 ? '' : `; nothing is known of ${silent.join(', ')}`
}

/**
 * What the other region knows later of these keys; null: it does not answer. The region's own rows are compared: where the control plane says
 * otherwise it is refused already, and of a key that nobody registered it says nothing.
 */
async function aheadThere(
  { controlPlane, region }: Question,
  other: Other,
  page: readonly BoundaryRow[],
): Promise<readonly string[] | null> {
  const found = await other.aheadOf(page, PAGE).catch(() => null)
  if (found === null) return null
  const left = await asked(region, () => stillAhead(controlPlane, found.rows))
  return left.map(({ row, record }) => describeAhead(other.region, row, record))
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
