import type { TableName } from '../domain/config.ts'

export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

export function quotedTable(table: TableName): string {
  return `${quoted(table.schema)}.${quoted(table.table)}`
}
