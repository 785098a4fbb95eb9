import type { Config } from '../../domain/config.ts'
import type { LastApplied } from '../../domain/loss.ts'
import type { Connection } from '../postgres/connection.ts'
import { identifier, relation } from './quoting.ts'

/** One statement for all keys: it is read while a region is dark, and a statement a key would take minutes for many. */
export async function lastApplied(
  connection: Connection,
  config: Pick<Config, 'inbox' | 'guarded'>,
  keys: readonly string[],
): Promise<ReadonlyMap<string, LastApplied>> {
  if (keys.length === 0) return new Map()
  const { rows } = await connection.query('read', sql(config), [keys])
  return new Map(rows.map(row => [String(row.key), { version: Number(row.version), ageMs: Math.max(0, Number(row.age_ms)) }]))
}

/** By text, since the columns may be of other types; few keys are cheap either way, and for many the tables are read whole. */
function sql({ inbox, guarded }: Pick<Config, 'inbox' | 'guarded'>): string {
  const versions = guarded.flatMap(table =>
    table.versions === null
      ? []
      : [
          `select ${identifier(table.key)}::text as key, max(${identifier(table.versions.version)})::bigint as version
          from ${relation(table)} where ${identifier(table.key)}::text = any ($1::text[]) group by 1`,
        ],
  )
  const highest = versions.length === 0 ? 'select null::text as key, null::bigint as version where false' : versions.join(' union all ')
  const c = inbox.columns
  return `with applied as materialized (
  select ${identifier(c.key)}::text as key, max(${identifier(c.appliedAt)}) as at from ${relation(inbox)}
  where ${identifier(c.key)}::text = any ($1::text[]) group by 1
), held as materialized (select key, max(version) as version from (${highest}) v group by key)
select a.key, coalesce(h.version, 0) as version, (extract(epoch from clock_timestamp() - a.at) * 1000)::float8 as age_ms
from applied a left join held h on h.key = a.key`
}
