import type { Config, GuardedTable } from '../../../domain/config.ts'
import type { LostKey } from '../../../domain/recovery.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { identifier } from '../quoting.ts'
import { bound, KEYS_AND_EPOCHS, type LostEvent } from './lost-events.ts'
import { rowsOf } from './session.ts'
import { keyIn, rowJson, rowName, type Shape } from './table-shape.ts'

export type Found = {
  readonly key: string
  readonly name: string
  readonly hash: string
  readonly aggregate: string
  readonly version: number
}

/** Contents fetched in one statement. */
const CHUNK = 500

export type RowQuestion = {
  readonly config: Config
  readonly guarded: GuardedTable
  readonly shape: Shape
  readonly outbox: Shape
  readonly keys: readonly LostKey[]
  /** Events that are listed already: what they tell of is not listed a second time. */
  readonly events: readonly LostEvent[]
  /** Keys of which events are listed that the source has lost; their rows tell the same. */
  readonly phantomKeys: ReadonlySet<string>
  /** Keys that were brought level and that the stream has gone on with: behind the home is where they are by then. */
  readonly reached: ReadonlySet<string>
}

export function placeOf(row: Pick<Found, 'key' | 'name'>): string {
  return JSON.stringify([row.key, row.name])
}

export async function rowsThere(
  { shape, guarded }: RowQuestion,
  keys: readonly string[],
  tx: ServiceTransaction,
): Promise<readonly Found[]> {
  const { versions } = guarded
  const rows = await rowsOf(
    tx,
    `select t.${shape.key}::text as key, ${rowName(shape)} as name, md5(${rowJson(shape, true)}::text) as hash,
  ${versions === null ? "''" : `t.${identifier(versions.aggregate)}::text`} as aggregate, ${versions === null ? '0' : `t.${identifier(versions.version)}::bigint`} as version
from ${shape.sql} t where ${keyIn(shape, '$1')}`,
    [keys],
  )
  return rows.map(row => ({
    ...{ key: String(row.key), name: String(row.name), hash: String(row.hash) },
    ...{ aggregate: String(row.aggregate), version: Number(row.version) },
  }))
}

/** The first version of each aggregate that the home wrote by itself. */
export async function firstWritten({ config, outbox, keys }: RowQuestion, home: ServiceTransaction): Promise<ReadonlyMap<string, number>> {
  const c = config.outbox.columns
  const rows = await rowsOf(
    home,
    `select t.${outbox.key}::text as key, t.${identifier(c.aggregateId)}::text as aggregate, min(t.${identifier(c.aggregateVersion)})::bigint as version
from ${KEYS_AND_EPOCHS(outbox, `${outbox.sql} t`)} where t.${identifier(c.ownerEpoch)} > k.epoch group by 1, 2`,
    bound(keys),
  )
  return new Map(rows.map(row => [JSON.stringify([String(row.key), String(row.aggregate)]), Number(row.version)]))
}

export async function contentsOf(
  shape: Shape,
  keys: readonly LostKey[],
  rows: readonly Found[],
  tx: ServiceTransaction,
): Promise<ReadonlyMap<string, string>> {
  const contents = new Map<string, string>()
  for (let from = 0; from < rows.length; from += CHUNK) {
    const found = await rowsOf(
      tx,
      `select t.${shape.key}::text as key, ${rowName(shape)} as name, to_json(t)::text as content from ${shape.sql} t
where ${keyIn(shape, '$1')} and ${rowName(shape)} = any ($2::text[])`,
      [keys.map(k => k.key), rows.slice(from, from + CHUNK).map(row => row.name)],
    )
    for (const row of found) contents.set(JSON.stringify([String(row.key), String(row.name)]), String(row.content))
  }
  return contents
}
