import type { TableName } from '../../../domain/config.ts'
import { HomeregionError } from '../../../domain/errors.ts'
import type { ServiceTransaction } from '../../postgres/service-pool.ts'
import { identifier, literal, literalArray, plainName, relation } from '../quoting.ts'
import { rowsOf } from './session.ts'

/** A table of the service as both regions have it. */
export type Shape = {
  readonly table: TableName
  readonly name: string
  readonly sql: string
  /** Quoted column of the ownership key, and its type as SQL. */
  readonly key: string
  readonly keyType: string
  /** Columns whose values belong to the row wherever it is: not those that are generated or numbered where it stands. */
  readonly copied: readonly { readonly name: string; readonly type: string }[]
  /** Columns that each region fills by its own clock, so that copies differ in them; they take no part in comparing. */
  readonly stamped: readonly string[]
  /** What tells rows apart; empty where nothing does. */
  readonly primary: readonly string[]
}

type Column = {
  readonly name: string
  readonly type: string
  readonly generated: boolean
  readonly numbered: boolean
  readonly keyed: boolean
  readonly primary: boolean
  readonly stamped: boolean
}

/** `numbered`: by an identity or a sequence that no key of the table is made of, so that the number means nothing elsewhere. */
const COLUMNS = `select a.attname as name, format_type(a.atttypid, a.atttypmod) as type, a.attgenerated <> '' as generated,
  a.attidentity <> '' as numbered,
  exists (select from pg_index i where i.indrelid = a.attrelid and i.indisunique and a.attnum = any (i.indkey)) as keyed,
  exists (select from pg_index i where i.indrelid = a.attrelid and i.indisprimary and a.attnum = any (i.indkey)) as primary,
  a.atttypid in ('timestamptz'::regtype, 'timestamp'::regtype)
    and coalesce(pg_get_expr(d.adbin, d.adrelid) ~* '(now|clock_timestamp|statement_timestamp|transaction_timestamp)\\(\\)|CURRENT_TIMESTAMP|LOCALTIMESTAMP', false) as stamped
from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = $1::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum`

/** @throws `check-refused` when the two do not have the same columns: replacing rows would lose what one side cannot hold */
export async function shapeOf(table: TableName, key: string, source: ServiceTransaction, home: ServiceTransaction): Promise<Shape> {
  const [here, there] = await Promise.all([columnsOf(source, table), columnsOf(home, table)])
  const text = (columns: readonly Column[]) =>
    columns
      .map(c => `${c.name} ${c.type}`)
      .toSorted()
      .join(', ')
  const name = plainName(table)
  if (text(here) !== text(there))
    throw new HomeregionError('check-refused', {
      fact: `${name} does not have the same columns in both regions`,
      state: 'Nothing of it was compared or replaced.',
      next: 'bring both schemas to one version, then the same command again',
    })
  const local = (c: Column) => c.generated || (c.numbered && !c.keyed)
  return {
    ...{ table, name, sql: relation(table), key: identifier(key) },
    keyType: here.find(c => c.name === key)?.type ?? 'text',
    copied: here.filter(c => !local(c)).map(({ name, type }) => ({ name, type })),
    stamped: here.filter(c => c.stamped && !c.keyed).map(c => c.name),
    primary: here.filter(c => c.primary).map(c => c.name),
  }
}

async function columnsOf(tx: ServiceTransaction, table: TableName): Promise<readonly Column[]> {
  return (await rowsOf(tx, COLUMNS, [relation(table)])) as readonly Column[]
}

/** The key column against a list of keys that is bound as text, so that the table's index serves. */
export function keyIn(shape: Pick<Shape, 'key' | 'keyType'>, parameter: string, alias = 't'): string {
  return `${alias}.${shape.key} = any (${parameter}::text[]::${shape.keyType}[])`
}

/**
 * The row as a JSON object of texts, without what is local to a region; `compared`: without what its clock filled in, too. Each value as its type
 * writes it: as JSON a `json` would lose its repeated names, a float its sign of zero, and rows that differ in that alone would be equal.
 */
export function rowJson(shape: Shape, compared: boolean, alias = 't'): string {
  const columns = shape.copied.map(c => c.name).filter(name => !compared || !shape.stamped.includes(name))
  return `jsonb_object(${literalArray(columns)}::text[], array[${columns.map(c => `${alias}.${identifier(c)}::text`).join(', ')}]::text[])`
}

/** The columns of a row again, from what `rowJson` made of it. */
export function columnsFrom(shape: Shape, json: string): string {
  return shape.copied.map(({ name, type }) => `(${json} ->> ${literal(name)})::${type}`).join(', ')
}

/** What tells the row apart, as JSON text; the row itself where the table has no primary key. */
export function rowName(shape: Shape, alias = 't'): string {
  if (shape.primary.length === 0) return `${rowJson(shape, true, alias)}::text`
  return `jsonb_build_array(${shape.primary.map(c => `${alias}.${identifier(c)}`).join(', ')})::text`
}
