import type { Config } from '../../../domain/config.ts'
import { HomeregionError } from '../../../domain/errors.ts'
import { showKey } from '../../../domain/key.ts'
import type { Levelled, LostKey } from '../../../domain/recovery.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { LOCK_SPACE } from '../boundary-sql.ts'
import { identifier, relation } from '../quoting.ts'
import { findLost } from './find-lost.ts'
import { byKey, digestsOf, keyDigest, levelShapes, markLevelled, standingOf, type TableDigests } from './levelled.ts'
import { bound, KEYS_AND_EPOCHS } from './lost-events.ts'
import { digestSql } from './lost-rows.ts'
import { rowsOf } from './session.ts'
import { columnsFrom, keyIn, rowJson, type Shape, shapeOf } from './table-shape.ts'

/** Rows in one round trip: a few megabytes at most. */
const FETCH = 2_000

export type LevelParts = {
  readonly config: Config
  /** Names of the two regions, and the transaction at each. */
  readonly region: string
  readonly homeName: string
  readonly source: ServiceTransaction
  /** Items that were decided about: what they stand for may be replaced. */
  readonly decided: ReadonlySet<string>
}

/**
 * Waits for whoever is applying changes of these keys, and keeps them out to the end of the transaction: what the home is read for afterwards
 * holds everything that was applied here before. In the order in which consumers take their shared locks, so that nobody waits in a circle.
 */
export async function lockKeys(source: ServiceTransaction, keys: readonly LostKey[]): Promise<void> {
  await rowsOf(
    source,
    `select pg_advisory_xact_lock($2::integer, l.h) from (select distinct hashtext(k.key collate "C") as h from unnest($1::text[]) as k(key) order by 1) l`,
    [keys.map(k => k.key), LOCK_SPACE],
  )
}

/**
 * Looks once more, replaces the rows, and proves it by digests before anything is committed. What goes is what was looked at: rows that differ from
 * it end the transaction. `home`: a snapshot taken after the keys were locked.
 */
export async function levelKeys(parts: LevelParts, keys: readonly LostKey[], home: ServiceTransaction): Promise<Levelled> {
  const { config, region, homeName, source, decided } = parts
  await requireHome(homeName, keys, home)
  const shapes = await levelShapes(config, source, home)
  const standing = await standingOf(config, shapes, keys, source)
  const seen = await digestsOf(
    shapes,
    keys.map(k => k.key),
    source,
  )
  const there = await findLost(config, region, keys, source, home)
  const found = there.filter(f => !decided.has(f.id))
  if (found.length > 0) return { levelled: [], found }
  const astray = new Set(there.filter(f => f.kind === 'row' || f.kind === 'idempotency').map(f => f.key))
  const due = keys.filter(({ key }) => {
    const now = standing.get(key)
    return now === undefined || now === 'changed' || (now === 'reached' && astray.has(key))
  })
  const rows = new Map(keys.map(({ key }) => [key, keyDigest(seen, key).rows]))
  if (due.length > 0) for (const [key, count] of await replaceRows(parts, shapes, due, seen, home)) rows.set(key, count)
  return { levelled: keys.map(k => ({ key: k.key, rows: rows.get(k.key) ?? 0 })), found: [] }
}

async function replaceRows(
  { config, region, source }: LevelParts,
  shapes: readonly Shape[],
  keys: readonly LostKey[],
  seen: TableDigests,
  home: ServiceTransaction,
): Promise<ReadonlyMap<string, number>> {
  const rows = new Map(keys.map(k => [k.key, 0]))
  const names = keys.map(k => k.key)
  // All go before any comes: a unique value may have changed its table or its row.
  for (const [i, shape] of [...shapes.entries()].toReversed()) {
    const gone = byKey(await rowsOf(source, deleteSql(shape), [names]))
    const other = names.find(key => gone.get(key)?.hash !== seen[i]?.get(key)?.hash)
    if (other !== undefined)
      throw new HomeregionError('check-refused', {
        fact: `${shape.name} of ${showKey(other)} in ${region} changed while it was looked at`,
        state: 'Nothing of it was committed.',
        next: `homeregion rejoin ${region} again: what changed goes on the list`,
      })
  }
  for (const shape of shapes) await copyRows(shape, names, source, home)
  for (const shape of shapes) {
    for (const [key, count] of await requireEqual(shape, region, names, source, home)) rows.set(key, (rows.get(key) ?? 0) + count)
  }
  await settleOutbox(config, keys, source, home)
  await markLevelled(config, shapes, keys, source)
  return rows
}

/** What was deleted, as `digestSql` tells of what is there. */
function deleteSql(shape: Shape): string {
  return `with gone as (delete from ${shape.sql} t where ${keyIn(shape, '$1')} returning t.*)
select t.${shape.key}::text as key, count(*) as rows, md5(string_agg(x.h, ',' order by x.h)) as hash
from gone t, lateral (select md5(${rowJson(shape, false)}::text) as h) x group by 1`
}

/** Only the region that owns a key in this very snapshot can say what its rows are. */
async function requireHome(homeName: string, keys: readonly LostKey[], home: ServiceTransaction): Promise<void> {
  const rows = await rowsOf(
    home,
    `select k.key from unnest($1::text[], $2::bigint[]) as k(key, epoch)
where not exists (select from homeregion.ownership o where o.key = k.key collate "C" and o.home_region = $3 and o.epoch > k.epoch
  and o.state in ('ACTIVE', 'DRAINING'))`,
    [...bound(keys), homeName],
  )
  const [first] = rows
  if (first === undefined) return
  throw new HomeregionError('check-refused', {
    fact: `${homeName} does not hold ${showKey(String(first.key))} as its own now`,
    state: 'Its rows were not replaced.',
    next: 'wait for the move that has the key, then the same command again',
  })
}

async function copyRows(shape: Shape, keys: readonly string[], source: ServiceTransaction, home: ServiceTransaction): Promise<void> {
  await rowsOf(
    home,
    `declare homeregion_rows no scroll cursor for select ${rowJson(shape, false)}::text as line from ${shape.sql} t where ${keyIn(shape, '$1')}`,
    [keys],
  )
  const columns = shape.copied.map(c => identifier(c.name)).join(', ')
  for (;;) {
    const rows = await rowsOf(home, `fetch ${FETCH} from homeregion_rows`, [])
    if (rows.length > 0)
      // The number of an identity column that is part of a key goes with the row.
      await rowsOf(
        source,
        `insert into ${shape.sql} (${columns}) overriding system value
select ${columnsFrom(shape, 'r.row')} from unnest($1::text[]) as j(line), lateral (select j.line::jsonb as row) r`,
        [rows.map(row => row.line)],
      )
    if (rows.length < FETCH) break
  }
  await rowsOf(home, 'close homeregion_rows', [])
}

async function requireEqual(
  shape: Shape,
  region: string,
  keys: readonly string[],
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<ReadonlyMap<string, number>> {
  const digests = async (tx: ServiceTransaction) =>
    new Map(
      (await rowsOf(tx, digestSql(shape, false), [keys])).map(row => [String(row.key), { rows: Number(row.rows), hash: String(row.hash) }]),
    )
  const [here, there] = await Promise.all([digests(source), digests(home)])
  const different = keys.find(key => here.get(key)?.hash !== there.get(key)?.hash)
  if (different !== undefined)
    throw new HomeregionError('check-refused', {
      fact: `${shape.name} of ${showKey(different)} in ${region} was not equal to the new home's after it was replaced`,
      state: 'Nothing of it was committed.',
      next: `look for triggers and column defaults of ${shape.name} that change rows as they are written`,
    })
  return new Map([...here].map(([key, { rows }]) => [key, rows]))
}

/** Events that the copied rows stand for must not apply a second time, and what was decided about must not leave any more. */
async function settleOutbox(config: Config, keys: readonly LostKey[], source: ServiceTransaction, home: ServiceTransaction): Promise<void> {
  const outbox = await shapeOf(config.outbox, config.outbox.columns.key, source, home)
  await recordEvents(config, outbox, keys, source, home)
  const { publishedAt, ownerEpoch } = config.outbox.columns
  if (publishedAt === null) return
  await rowsOf(
    source,
    `update ${outbox.sql} o set ${identifier(publishedAt)} = clock_timestamp()
where o.ctid in (select t.ctid from ${KEYS_AND_EPOCHS(outbox, `${outbox.sql} t`)} where t.${identifier(ownerEpoch)} <= k.epoch and t.${identifier(publishedAt)} is null)`,
    bound(keys),
  )
}

/**
 * The inbox of the source learns the ids of what the home has written since. Columns that the contract does not name are filled from columns of the
 * outbox with the same name, so that one which may not be null has what the service itself would have put there.
 */
async function recordEvents(
  config: Config,
  outbox: Shape,
  keys: readonly LostKey[],
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<void> {
  const [o, i] = [config.outbox.columns, config.inbox.columns]
  const inbox = await shapeOf(config.inbox, i.key, source, home)
  const columns = inbox.copied.map(c => identifier(c.name)).join(', ')
  await rowsOf(
    home,
    `declare homeregion_events no scroll cursor for
select (to_jsonb(t) || jsonb_build_object($3::text, t.${identifier(o.eventId)}, $4::text, t.${identifier(o.key)}, $5::text, t.${identifier(o.ownerEpoch)}))::text as line
from ${KEYS_AND_EPOCHS(outbox, `${outbox.sql} t`)} where t.${identifier(o.ownerEpoch)} > k.epoch`,
    [...bound(keys), i.eventId, i.key, i.ownerEpoch],
  )
  for (;;) {
    const rows = await rowsOf(home, `fetch ${FETCH} from homeregion_events`, [])
    if (rows.length > 0)
      await rowsOf(
        source,
        `insert into ${relation(config.inbox)} (${columns})
select ${inbox.copied.map(c => `r.${identifier(c.name)}`).join(', ')} from unnest($1::text[]) as j(line),
  lateral jsonb_populate_record(null::${relation(config.inbox)}, j.line::jsonb || jsonb_build_object($2::text, clock_timestamp())) r
on conflict do nothing`,
        [rows.map(row => row.line), i.appliedAt],
      )
    if (rows.length < FETCH) break
  }
  await rowsOf(home, 'close homeregion_events', [])
}
