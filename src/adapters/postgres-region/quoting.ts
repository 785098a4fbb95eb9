import pg from 'pg'
import type { DatabaseLogin, TableName } from '../../domain/config.ts'
import { HomeregionError } from '../../domain/errors.ts'

export const identifier: (name: string) => string = pg.escapeIdentifier
export const literal: (text: string) => string = pg.escapeLiteral

export function relation(table: TableName): string {
  return `${identifier(table.schema)}.${identifier(table.table)}`
}

/** As an operator writes it. */
export function plainName(table: TableName): string {
  return `${table.schema}.${table.table}`
}

/** A SQL array of text. */
export function literalArray(values: readonly string[]): string {
  return `array[${values.map(literal).join(', ')}]`
}

/** Role of a login: the user of its URL. */
export function loginRole(login: DatabaseLogin): string {
  const user = decodeURIComponent(new URL(login.url).username)
  if (user !== '') return user
  throw new HomeregionError('config-invalid', { fact: 'a database URL names no user: the boundary grants its functions to a role by name' })
}
