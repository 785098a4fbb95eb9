import type { Config } from '../../../domain/config.ts'
import type { ReconcileFinding } from '../../../domain/failover.ts'
import { byCodeUnit } from '../../../domain/order.ts'
import type { LostKey } from '../../../domain/recovery.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { identifier } from '../quoting.ts'
import { levelShapes, standingOf } from './levelled.ts'
import { asPhantom, type LostEvent, lookAtEvents, quarantinedEvents } from './lost-events.ts'
import { findLostRecords } from './lost-records.ts'
import { findLostRows } from './lost-rows.ts'
import { findPhantoms } from './phantoms.ts'
import { rowsOf } from './session.ts'
import { keyIn, type Shape, shapeOf } from './table-shape.ts'

/** All that is found about a batch of keys, each thing once. Ordered by key and id. */
export async function findLost(
  config: Config,
  region: string,
  keys: readonly LostKey[],
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<readonly ReconcileFinding[]> {
  const outbox = await shapeOf(config.outbox, config.outbox.columns.key, source, home)
  const look = await lookAtEvents(config, outbox, keys, source, home)
  const events = await withQuarantined(config, region, keys, look.lost, look.atSource, source, home)
  const found: ReconcileFinding[] = events.map(e => e.finding)
  const phantoms = await findPhantoms(config, keys, look.atSource, home)
  found.push(...phantoms)
  const phantomKeys = new Set(phantoms.map(p => p.key))
  const standing = await standingOf(config, await levelShapes(config, source, home), keys, source)
  // What was brought level is the home's past by now, and differs from it for that alone; so is what the stream has made of it since, unless it is
  // ahead of the home.
  const open = keys.filter(k => standing.get(k.key) !== 'as-left')
  const reached = new Set(keys.filter(k => standing.get(k.key) === 'reached').map(k => k.key))
  const unreached = open.filter(k => !reached.has(k.key))
  for (const guarded of config.guarded) {
    const shape = await shapeOf(guarded, guarded.key, source, home)
    const looked = guarded.versions === null ? unreached : open
    if (looked.length > 0)
      found.push(...(await findLostRows({ config, guarded, shape, outbox, keys: looked, events, phantomKeys, reached }, source, home)))
  }
  if (config.idempotency !== null && unreached.length > 0) {
    const shape = await shapeOf(config.idempotency, config.idempotency.key, source, home)
    found.push(...(await findLostRecords(config, shape, unreached, events, source, home)))
  }
  const unique = new Map(found.map(f => [f.id, f]))
  return [...unique.values()].toSorted((a, b) => byCodeUnit(a.key, b.key) || byCodeUnit(a.id, b.id))
}

async function withQuarantined(
  config: Config,
  region: string,
  keys: readonly LostKey[],
  lost: readonly LostEvent[],
  atSource: ReadonlySet<string>,
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<readonly LostEvent[]> {
  const late = await quarantinedEvents(keys, region, home)
  const known = new Set(lost.map(e => e.id))
  const more = late.filter(e => !known.has(e.id))
  // Not in the source's outbox any more: trimmed there, or its row went with a database that was set back.
  const versions = more.length === 0 ? new Map<string, number>() : await versionsAt(config, keys, source, home)
  return [
    ...lost,
    ...more.map(e => (!atSource.has(e.id) && (versions.get(JSON.stringify([e.key, e.aggregateId])) ?? 0) < e.version ? asPhantom(e) : e)),
  ]
}

/** The highest version the source holds of each aggregate, in whatever table. */
async function versionsAt(
  config: Config,
  keys: readonly LostKey[],
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<ReadonlyMap<string, number>> {
  const found = new Map<string, number>()
  for (const guarded of config.guarded) {
    if (guarded.versions === null) continue
    const shape: Shape = await shapeOf(guarded, guarded.key, source, home)
    const rows = await rowsOf(
      source,
      `select t.${shape.key}::text as key, t.${identifier(guarded.versions.aggregate)}::text as aggregate, max(t.${identifier(guarded.versions.version)})::bigint as version
from ${shape.sql} t where ${keyIn(shape, '$1')} group by 1, 2`,
      [keys.map(k => k.key)],
    )
    for (const row of rows) {
      const place = JSON.stringify([String(row.key), String(row.aggregate)])
      found.set(place, Math.max(found.get(place) ?? 0, Number(row.version)))
    }
  }
  return found
}
