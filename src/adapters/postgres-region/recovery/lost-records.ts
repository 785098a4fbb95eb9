import type { Config } from '../../../domain/config.ts'
import type { Json } from '../../../domain/evidence.ts'
import type { ReconcileFinding } from '../../../domain/failover.ts'
import type { LostKey } from '../../../domain/recovery.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { identifier } from '../quoting.ts'
import { exactJson } from './exact-json.ts'
import { itemId, type LostEvent } from './lost-events.ts'
import { rowsOf } from './session.ts'
import { keyIn, type Shape } from './table-shape.ts'

/**
 * Idempotency records that only the source has. One that a listed event carries in its payload belongs to that event's item: one write is one
 * item, and one decision.
 */
export async function findLostRecords(
  config: Config,
  shape: Shape,
  keys: readonly LostKey[],
  events: readonly LostEvent[],
  source: ServiceTransaction,
  home: ServiceTransaction,
): Promise<readonly ReconcileFinding[]> {
  if (config.idempotency === null) return []
  const id = identifier(config.idempotency.id)
  const names = keys.map(k => k.key)
  const ids = async (tx: ServiceTransaction) =>
    (
      await rowsOf(tx, `select t.${shape.key}::text as key, t.${id}::text as id from ${shape.sql} t where ${keyIn(shape, '$1')}`, [names])
    ).map(row => ({ key: String(row.key), id: String(row.id) }))
  const [here, there] = await Promise.all([ids(source), ids(home)])
  const known = new Set(there.map(r => JSON.stringify([r.key, r.id])))
  const carried = (r: { key: string; id: string }) => events.some(e => e.key === r.key && e.payload.includes(JSON.stringify(r.id)))
  const lost = here.filter(r => !known.has(JSON.stringify([r.key, r.id])) && !carried(r))
  if (lost.length === 0) return []
  const rows = await rowsOf(
    source,
    `select t.${shape.key}::text as key, t.${id}::text as id, to_json(t)::text as content from ${shape.sql} t where ${keyIn(shape, '$1')} and t.${id}::text = any ($2::text[])`,
    [names, lost.map(r => r.id)],
  )
  const contents = new Map<string, Json>(
    rows.map(row => [JSON.stringify([String(row.key), String(row.id)]), exactJson(String(row.content))]),
  )
  return lost.map(r => ({
    id: itemId('idempotency', [r.key, r.id]),
    ...{ key: r.key, kind: 'idempotency' as const, subject: `${shape.name} ${r.id}` },
    content: { table: shape.name, record: contents.get(JSON.stringify([r.key, r.id])) ?? null },
  }))
}
