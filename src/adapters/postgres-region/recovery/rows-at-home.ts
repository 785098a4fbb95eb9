import type { ReconcileFinding } from '../../../domain/failover.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { exactJson } from './exact-json.ts'
import { contentsOf, type Found, firstWritten, placeOf, type RowQuestion } from './found-rows.ts'
import { itemId } from './lost-events.ts'
import { rowsOf } from './session.ts'
import { keyIn, rowName } from './table-shape.ts'

/**
 * Rows without versions that only the home has. Those it wrote itself since it opened the key are its own; what was there before, the source had as
 * well, or should have had, and deleted: a write like any other. Where the key's row was written again since, more rows count as there before.
 */
export async function deletedAtSource(
  question: RowQuestion,
  here: readonly Found[],
  there: readonly Found[],
  home: ServiceTransaction,
): Promise<readonly ReconcileFinding[]> {
  const { shape, keys } = question
  const atSource = new Set(here.map(placeOf))
  const only = there.filter(row => !atSource.has(placeOf(row)))
  if (only.length === 0) return []
  const before = new Set(
    (
      await rowsOf(
        home,
        `select t.${shape.key}::text as key, ${rowName(shape)} as name from ${shape.sql} t
join homeregion.ownership o on o.key = t.${shape.key}::text collate "C" where ${keyIn(shape, '$1')} and age(t.xmin) > age(o.xmin)`,
        [keys.map(k => k.key)],
      )
    ).map(row => placeOf({ key: String(row.key), name: String(row.name) })),
  )
  const gone = only.filter(row => before.has(placeOf(row)))
  const theirs = await contentsOf(shape, keys, gone, home)
  return gone.map(row => ({
    id: itemId('row', [shape.name, row.key, row.name, 'deleted']),
    ...{ key: row.key, kind: 'row' as const, subject: `${shape.name} ${row.name}: deleted at the old home, still at the new one` },
    content: { table: shape.name, row: null, atHome: exactJson(theirs.get(placeOf(row)) ?? null) },
  }))
}

/** Versions that the home had applied before it wrote any of its own, and that the source has not: its database was set back. */
export async function lostAtSource(
  question: RowQuestion,
  here: readonly Found[],
  there: readonly Found[],
  home: ServiceTransaction,
): Promise<readonly ReconcileFinding[]> {
  const { shape, phantomKeys, reached } = question
  const atSource = new Map(here.map(row => [placeOf(row), row]))
  const ahead = there.filter(
    row => !phantomKeys.has(row.key) && !reached.has(row.key) && (atSource.get(placeOf(row))?.version ?? 0) < row.version,
  )
  if (ahead.length === 0) return []
  const first = await firstWritten(question, home)
  return ahead.flatMap(row => {
    const own = first.get(JSON.stringify([row.key, row.aggregate]))
    const applied = own === undefined ? row.version : own - 1
    const had = atSource.get(placeOf(row))?.version ?? 0
    if (applied <= had) return []
    return [
      {
        id: itemId('phantom', [shape.name, row.key, row.name, String(applied)]),
        ...{ key: row.key, kind: 'phantom' as const },
        subject: `${shape.name} ${row.name}: the new home applied up to version ${applied}, the old one has lost what is after ${had}`,
        content: { table: shape.name, name: exactJson(row.name), appliedAtHome: applied, atSource: had },
      },
    ]
  })
}
