import { createHash } from 'node:crypto'
import type { Config } from '../../../domain/config.ts'
import type { LostKey } from '../../../domain/recovery.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { identifier, relation } from '../quoting.ts'
import { typeOf } from './lost-events.ts'
import { digestSql } from './lost-rows.ts'
import { rowsOf } from './session.ts'
import { keyIn, type Shape, shapeOf } from './table-shape.ts'

/**
 * What became of a key since it was brought level: its rows are as they were left then, its stream has applied more to it, or neither, so that somebody
 * else changed them. A key that was not brought level under this epoch has none.
 */
export type Standing = 'as-left' | 'reached' | 'changed'

/** One text for all rows of a key in all tables, and how many they are. */
export type KeyDigest = { readonly text: string; readonly rows: number }

/** Every table whose rows are replaced, as both regions have it. */
export async function levelShapes(config: Config, source: ServiceTransaction, home: ServiceTransaction): Promise<readonly Shape[]> {
  const tables = [
    ...config.guarded.map(t => ({ table: t, key: t.key })),
    ...(config.idempotency === null ? [] : [{ table: config.idempotency, key: config.idempotency.key }]),
  ]
  return await Promise.all(tables.map(async t => await shapeOf(t.table, t.key, source, home)))
}

/** Per table and key, in the order of `shapes`; a key without rows in a table has none there. */
export type TableDigests = readonly ReadonlyMap<string, { readonly rows: number; readonly hash: string }>[]

export async function digestsOf(shapes: readonly Shape[], keys: readonly string[], tx: ServiceTransaction): Promise<TableDigests> {
  return await Promise.all(shapes.map(async shape => byKey(await rowsOf(tx, digestSql(shape, false), [keys]))))
}

export function byKey(
  rows: readonly Readonly<Record<string, unknown>>[],
): ReadonlyMap<string, { readonly rows: number; readonly hash: string }> {
  return new Map(rows.map(row => [String(row['key']), { rows: Number(row['rows']), hash: String(row['hash']) }]))
}

export function keyDigest(tables: TableDigests, key: string): KeyDigest {
  const own = tables.map(t => t.get(key) ?? { rows: 0, hash: '' })
  const text = createHash('sha256')
    .update(JSON.stringify(own.map(d => [d.rows, d.hash])))
    .digest('hex')
  return { text, rows: own.reduce((sum, d) => sum + d.rows, 0) }
}

export async function standingOf(
  config: Config,
  shapes: readonly Shape[],
  keys: readonly LostKey[],
  source: ServiceTransaction,
): Promise<ReadonlyMap<string, Standing>> {
  const marks = await rowsOf(
    source,
    `select l.key, l.digest, l.applied from unnest($1::text[], $2::bigint[]) as k(key, epoch) join homeregion.levelled l on l.key = k.key collate "C" and l.epoch = k.epoch`,
    [keys.map(k => k.key), keys.map(k => k.epoch)],
  )
  if (marks.length === 0) return new Map()
  const names = marks.map(row => String(row.key))
  const [digests, applied] = await Promise.all([digestsOf(shapes, names, source), appliedOf(config, names, source)])
  return new Map(
    marks.map(row => {
      const key = String(row.key)
      if (keyDigest(digests, key).text === row.digest) return [key, 'as-left'] as const
      return [key, (applied.get(key) ?? 0) === Number(row.applied) ? 'changed' : 'reached'] as const
    }),
  )
}

/** In the transaction that brought them level: no crash parts the rows from the word that they are level. */
export async function markLevelled(
  config: Config,
  shapes: readonly Shape[],
  keys: readonly LostKey[],
  source: ServiceTransaction,
): Promise<void> {
  const names = keys.map(k => k.key)
  const [digests, applied] = await Promise.all([digestsOf(shapes, names, source), appliedOf(config, names, source)])
  await rowsOf(
    source,
    `insert into homeregion.levelled as l (key, epoch, digest, applied) select * from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[])
on conflict (key) do update set epoch = excluded.epoch, digest = excluded.digest, applied = excluded.applied, at = excluded.at`,
    [names, keys.map(k => k.epoch), names.map(key => keyDigest(digests, key).text), names.map(key => applied.get(key) ?? 0)],
  )
}

/** Events of each key in the region's inbox: one more, and its stream has reached the key. */
async function appliedOf({ inbox }: Config, keys: readonly string[], source: ServiceTransaction): Promise<ReadonlyMap<string, number>> {
  const key = { key: identifier(inbox.columns.key), keyType: await typeOf(source, relation(inbox), inbox.columns.key) }
  const rows = await rowsOf(
    source,
    `select t.${key.key}::text as key, count(*) as events from ${relation(inbox)} t where ${keyIn(key, '$1')} group by 1`,
    [keys],
  )
  return new Map(rows.map(row => [String(row.key), Number(row.events)]))
}
