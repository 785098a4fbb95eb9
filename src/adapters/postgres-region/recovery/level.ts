import type { Config } from '../../../domain/config.ts'
import { HomeregionError } from '../../../domain/errors.ts'
import { showKey } from '../../../domain/key.ts'
import type { LevelledKey, LostKey } from '../../../domain/recovery.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { LOCK_SPACE } from '../boundary-sql.ts'
import { identifier, relation } from '../quoting.ts'
import { bound, KEYS_AND_EPOCHS } from './lost-events.ts'
import { digestSql } from './lost-rows.ts'
import { rowsOf } from './session.ts'
import { keyIn, rowJson, type Shape, shapeOf } from './table-shape.ts'

/** Rows in one round trip: a few megabytes at most. */
const FETCH = 2_000

export type LevelParts = {
  readonly config: Config
  /** Names of the two regions, and the transaction at each. */
  readonly region: string
  readonly homeName: string
  readonly source: ServiceTransaction
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

/** Replaces the rows, and proves it by digests before anything is committed. `home`: a snapshot taken after the keys were locked. */
export async function levelKeys(
  { config, region, homeName, source }: LevelParts,
  keys: readonly LostKey[],
  home: ServiceTransaction,
): Promise<readonly LevelledKey[]> {
  await requireHome(homeName, keys, home)
  const rows = new Map(keys.map(k => [k.key, 0]))
  const tables = [
    ...config.guarded.map(t => ({ table: t, key: t.key })),
    ...(config.idempotency === null ? [] : [{ table: config.idempotency, key: config.idempotency.key }]),
  ]
  const shapes = await Promise.all(tables.map(async t => await shapeOf(t.table, t.key, source, home)))
  const names = keys.map(k => k.key)
  // All go before any comes: a unique value may have changed its table or its row.
  for (const shape of shapes.toReversed()) await rowsOf(source, `delete from ${shape.sql} t where ${keyIn(shape, '$1')}`, [names])
  for (const shape of shapes) await copyRows(shape, names, source, home)
  for (const shape of shapes) {
    for (const [key, count] of await requireEqual(shape, region, names, source, home)) rows.set(key, (rows.get(key) ?? 0) + count)
  }
  await settleOutbox(config, keys, source, home)
  return keys.map(k => ({ key: k.key, rows: rows.get(k.key) ?? 0 }))
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
  const columns = shape.copied.map(identifier).join(', ')
  for (;;) {
    const rows = await rowsOf(home, `fetch ${FETCH} from homeregion_rows`, [])
    if (rows.length > 0)
      // The number of an identity column that is part of a key goes with the row.
      await rowsOf(
        source,
        `insert into ${shape.sql} (${columns}) overriding system value
select ${shape.copied.map(c => `r.${identifier(c)}`).join(', ')} from unnest($1::text[]) as j(line), lateral jsonb_populate_record(null::${shape.sql}, j.line::jsonb) r`,
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
  const columns = inbox.copied.map(identifier).join(', ')
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
select ${inbox.copied.map(c => `r.${identifier(c)}`).join(', ')} from unnest($1::text[]) as j(line),
  lateral jsonb_populate_record(null::${relation(config.inbox)}, j.line::jsonb || jsonb_build_object($2::text, clock_timestamp())) r
on conflict do nothing`,
        [rows.map(row => row.line), i.appliedAt],
      )
    if (rows.length < FETCH) break
  }
  await rowsOf(home, 'close homeregion_events', [])
}
