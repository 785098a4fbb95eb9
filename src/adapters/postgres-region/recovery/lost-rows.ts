import type { Config } from '../../../domain/config.ts'
import type { ReconcileFinding } from '../../../domain/failover.ts'
import type { LostKey } from '../../../domain/recovery.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { identifier } from '../quoting.ts'
import { exactJson } from './exact-json.ts'
import { contentsOf, type Found, firstWritten, placeOf, type RowQuestion, rowsThere } from './found-rows.ts'
import { bound, itemId, KEYS_AND_EPOCHS, notApplied } from './lost-events.ts'
import { deletedAtSource, lostAtSource } from './rows-at-home.ts'
import { rowsOf } from './session.ts'
import { keyIn, rowJson, type Shape } from './table-shape.ts'

/**
 * Rows that the source has and the home has not, or has otherwise though nothing says that the home wrote them since; and rows that only the home
 * has since the source deleted them.
 */
export async function findLostRows(
  question: RowQuestion,
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<readonly ReconcileFinding[]> {
  const { shape, keys, guarded } = question
  const differing = await differingKeys(shape, keys, source, home)
  if (differing.length === 0) return []
  const [here, there] = await Promise.all([rowsThere(question, differing, source), rowsThere(question, differing, home)])
  const atHome = new Map(there.map(row => [placeOf(row), row]))
  const differ = here.filter(row => atHome.get(placeOf(row))?.hash !== row.hash)
  const lost = guarded.versions === null ? differ : await versionedLost(question, differ, atHome, source, home)
  const behind =
    guarded.versions === null ? await deletedAtSource(question, here, there, home) : await lostAtSource(question, here, there, home)
  const contents = async (tx: ServiceTransaction, rows: readonly Found[]) => await contentsOf(shape, keys, rows, tx)
  const [mine, theirs] = await Promise.all([contents(source, lost), contents(home, lost)])
  return [
    ...lost.map((row): ReconcileFinding => {
      const other = atHome.get(placeOf(row))
      const version = guarded.versions === null ? '' : `, version ${row.version}`
      const why = other === undefined ? 'not at the new home' : 'different at the new home'
      return {
        id: itemId('row', [shape.name, row.key, row.name, guarded.versions === null ? row.hash : String(row.version), row.hash]),
        ...{ key: row.key, kind: 'row', subject: `${shape.name} ${row.name}${version}: ${why}` },
        content: { table: shape.name, row: exactJson(mine.get(placeOf(row)) ?? null), atHome: exactJson(theirs.get(placeOf(row)) ?? null) },
      }
    }),
    ...behind,
  ]
}

async function differingKeys(
  shape: Shape,
  keys: readonly LostKey[],
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<readonly string[]> {
  const digests = async (tx: ServiceTransaction) =>
    new Map(
      (await rowsOf(tx, digestSql(shape, true), [keys.map(k => k.key)])).map(row => [
        String(row.key),
        `${String(row.rows)} ${String(row.hash)}`,
      ]),
    )
  const [here, there] = await Promise.all([digests(source), digests(home)])
  return keys.map(k => k.key).filter(key => here.get(key) !== there.get(key))
}

/** One line a key: how many rows, and a hash over all of them in an order of their own. */
export function digestSql(shape: Shape, compared: boolean): string {
  return `select t.${shape.key}::text as key, count(*) as rows, md5(string_agg(x.h, ',' order by x.h)) as hash
from ${shape.sql} t, lateral (select md5(${rowJson(shape, compared)}::text) as h) x where ${keyIn(shape, '$1')} group by 1`
}

/**
 * A version ahead of the home's, or the same one with another content, was written at the source alone. A version behind it is the home's past,
 * unless the home began to write from below it: then it was lost. Where neither outbox can tell any more, it is listed: too much rather than too little.
 */
async function versionedLost(
  question: RowQuestion,
  differ: readonly Found[],
  atHome: ReadonlyMap<string, Found>,
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<readonly Found[]> {
  const told = new Set(oneTable(question.config) ? question.events.map(e => JSON.stringify([e.key, e.aggregateId, e.version])) : [])
  const isBehind = (row: Found) => (atHome.get(placeOf(row))?.version ?? -1) > row.version
  const open = differ.filter(
    row => !told.has(JSON.stringify([row.key, row.aggregate, row.version])) && !(isBehind(row) && question.reached.has(row.key)),
  )
  const behind = open.filter(isBehind)
  if (behind.length === 0) return open
  const [first, applied, followed] = await Promise.all([
    firstWritten(question, home),
    versionsInOutbox(
      question,
      behind.map(row => row.aggregate),
      source,
    ),
    followedVersions(question, behind, source, home),
  ])
  return open.filter(row => {
    if (!isBehind(row)) return true
    const place = JSON.stringify([row.key, row.aggregate])
    // Its event stands in the outbox and is not among the lost ones: the home has applied it. Or it is the home's own, which the stream has brought.
    const version = JSON.stringify([row.key, row.aggregate, row.version])
    if (applied.has(version) || followed.has(version)) return false
    const from = first.get(place)
    return from === undefined || from <= row.version
  })
}

/** The aggregate of an event names a row of one table only where no other table has versions. */
function oneTable(config: Config): boolean {
  return config.guarded.filter(t => t.versions !== null).length === 1
}

async function versionsInOutbox(
  { config, outbox, keys }: RowQuestion,
  aggregates: readonly string[],
  source: ServiceTransaction,
): Promise<ReadonlySet<string>> {
  const c = config.outbox.columns
  const rows = await rowsOf(
    source,
    `select t.${outbox.key}::text as key, t.${identifier(c.aggregateId)}::text as aggregate, t.${identifier(c.aggregateVersion)}::bigint as version
from ${outbox.sql} t where ${keyIn(outbox, '$1')} and t.${identifier(c.aggregateId)}::text = any ($2::text[])`,
    [keys.map(k => k.key), aggregates],
  )
  return new Set(rows.map(row => JSON.stringify([String(row.key), String(row.aggregate), Number(row.version)])))
}

/**
 * Of these rows those that the home wrote by itself since, and that the source has from its stream: it follows again, and the home has gone on. Its
 * inbox says so, in the transaction that wrote the row.
 */
async function followedVersions(
  { config, outbox, keys }: RowQuestion,
  behind: readonly Found[],
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<ReadonlySet<string>> {
  const c = config.outbox.columns
  const written = await rowsOf(
    home,
    `select t.${identifier(c.eventId)}::text as id, t.${outbox.key}::text as key, b.aggregate, b.version
from ${KEYS_AND_EPOCHS(outbox, `${outbox.sql} t`)}
join unnest($3::text[], $4::text[], $5::bigint[]) as b(key, aggregate, version)
  on b.key = t.${outbox.key}::text and b.aggregate = t.${identifier(c.aggregateId)}::text and b.version = t.${identifier(c.aggregateVersion)}::bigint
where t.${identifier(c.ownerEpoch)} > k.epoch`,
    [...bound(keys), behind.map(row => row.key), behind.map(row => row.aggregate), behind.map(row => row.version)],
  )
  if (written.length === 0) return new Set()
  const missing = new Set(
    await notApplied(
      config,
      source,
      written.map(row => String(row.id)),
    ),
  )
  return new Set(
    written
      .filter(row => !missing.has(String(row.id)))
      .map(row => JSON.stringify([String(row.key), String(row.aggregate), Number(row.version)])),
  )
}
