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

/**
 * By text, since the columns may be of other types. The keys are a table of their own, whose size the planner knows: few are looked up by an
 * index where there is one, and for many the tables are read whole. Of a list to compare with it would weigh each entry by itself, table by table;
 * and what the tables say is put together by one grouping, since of a join of two groupings it knows neither's size.
 */
function sql({ inbox, guarded }: Pick<Config, 'inbox' | 'guarded'>): string {
  const asked = (column: string) => `join unnest($1::text[]) as asked(key) on asked.key = t.${identifier(column)}::text`
  const c = inbox.columns
  const applied = `select asked.key, t.${identifier(c.appliedAt)}::timestamptz as at, null::bigint as version from ${relation(inbox)} t ${asked(c.key)}`
  const held = guarded.flatMap(table =>
    table.versions === null
      ? []
      : [`select asked.key, null, t.${identifier(table.versions.version)}::bigint from ${relation(table)} t ${asked(table.key)}`],
  )
  return `select key, coalesce(max(version), 0) as version, (extract(epoch from clock_timestamp() - max(at)) * 1000)::float8 as age_ms
from (${[applied, ...held].join(' union all ')}) seen group by key having max(at) is not null`
}
