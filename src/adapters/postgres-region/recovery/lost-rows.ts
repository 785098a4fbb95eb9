import type { Config, GuardedTable } from '../../../domain/config.ts'
import type { ReconcileFinding } from '../../../domain/failover.ts'
import type { LostKey } from '../../../domain/recovery.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { identifier } from '../quoting.ts'
import { exactJson } from './exact-json.ts'
import { bound, itemId, KEYS_AND_EPOCHS, type LostEvent, notApplied } from './lost-events.ts'
import { rowsOf } from './session.ts'
import { keyIn, rowJson, rowName, type Shape } from './table-shape.ts'

type Found = { readonly key: string; readonly name: string; readonly hash: string; readonly aggregate: string; readonly version: number }

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

function placeOf(row: Pick<Found, 'key' | 'name'>): string {
  return JSON.stringify([row.key, row.name])
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

async function rowsThere({ shape, guarded }: RowQuestion, keys: readonly string[], tx: ServiceTransaction): Promise<readonly Found[]> {
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

/** The first version of each aggregate that the home wrote by itself. */
async function firstWritten({ config, outbox, keys }: RowQuestion, home: ServiceTransaction): Promise<ReadonlyMap<string, number>> {
  const c = config.outbox.columns
  const rows = await rowsOf(
    home,
    `select t.${outbox.key}::text as key, t.${identifier(c.aggregateId)}::text as aggregate, min(t.${identifier(c.aggregateVersion)})::bigint as version
from ${KEYS_AND_EPOCHS(outbox, `${outbox.sql} t`)} where t.${identifier(c.ownerEpoch)} > k.epoch group by 1, 2`,
    bound(keys),
  )
  return new Map(rows.map(row => [JSON.stringify([String(row.key), String(row.aggregate)]), Number(row.version)]))
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

/**
 * Rows without versions that only the home has. Those it wrote itself since it opened the key are its own; what was there before, the source had as
 * well, or should have had, and deleted: a write like any other. Where the key's row was written again since, more rows count as there before.
 */
async function deletedAtSource(
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
async function lostAtSource(
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

async function contentsOf(
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
