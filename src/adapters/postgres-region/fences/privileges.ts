import type { Json } from '../../../domain/evidence.ts'
import type { Row } from '../../postgres/connection.ts'
import { identifier } from '../quoting.ts'

/** One privilege to write, as the catalogue holds it: each with its own grantor, because only that one can give it back. */
export type Privilege = {
  /** Quoted, with its schema. */
  readonly relation: string
  readonly relationOid: string
  /** null: the whole relation. */
  readonly column: string | null
  /** By which a renamed column is found. */
  readonly columnNumber: number | null
  /** null: PUBLIC. */
  readonly grantee: string | null
  readonly granteeOid: string
  readonly grantor: string
  readonly grantorOid: string
  /** Given as the relation's owner, whoever that is: an owner that changes takes its grants along. */
  readonly byOwner: boolean
  readonly privilege: string
  readonly grantable: boolean
}

/** A statement and the role it has to be made as; null: as ourselves, which PostgreSQL takes for the owner. */
export type PrivilegeStatement = { readonly as: string | null; readonly sql: string }

export function privilege(row: Row): Privilege {
  return {
    relation: String(row.relation),
    relationOid: String(row.relation_oid),
    column: text(row.column),
    columnNumber: typeof row.column_number === 'number' ? row.column_number : null,
    grantee: text(row.grantee),
    granteeOid: String(row.grantee_oid),
    grantor: String(row.grantor),
    grantorOid: String(row.grantor_oid),
    byOwner: row.by_owner === true,
    privilege: writing(String(row.privilege)),
    grantable: row.grantable === true,
  }
}

const WRITING: readonly string[] = ['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']

/** It stands in statements as it is, and comes from a record that its keeper may have changed. */
function writing(name: string): string {
  if (WRITING.includes(name)) return name
  throw new RangeError(`${JSON.stringify(name)} is no privilege to write`)
}

function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}

/** As an operator reads it: `UPDATE (published_at) on "public"."outbox" to app_relay by app_owner`. */
export function privilegeText(p: Privilege): string {
  const what = p.column === null ? p.privilege : `${p.privilege} (${p.column})`
  return `${what} on ${p.relation} to ${p.grantee ?? 'PUBLIC'}${p.byOwner ? '' : ` by ${p.grantor}`}${p.grantable ? ' with grant option' : ''}`
}

/** Names one entry of an ACL: no two privileges of a database have the same. */
export function privilegeItem(p: Privilege, kind: 'grant' | 'stand-in'): string {
  return JSON.stringify([kind, p.relation, p.column, p.grantee, p.byOwner ? null : p.grantor, p.privilege])
}

export function privilegeRecord(p: Privilege, kind: 'grant' | 'stand-in'): Json {
  return { kind, ...p }
}

/** True when `p` stands on the grant option that `provider` gives. */
export function restsOn(p: Privilege, provider: Privilege): boolean {
  return (
    !p.byOwner &&
    provider.grantable &&
    provider.grantee === p.grantor &&
    provider.relation === p.relation &&
    provider.privilege === p.privilege &&
    (provider.column === null || provider.column === p.column)
  )
}

/** How many grants below the owner's. PostgreSQL refuses circular grants; a catalogue that shows one ends here all the same. */
function depth(p: Privilege, all: readonly Privilege[], path: readonly Privilege[] = []): number {
  if (p.byOwner || path.includes(p)) return 0
  return 1 + Math.max(0, ...all.filter(q => restsOn(p, q)).map(q => depth(q, all, [...path, p])))
}

type Ordered = { readonly p: Privilege; readonly depth: number }

function ordered(all: readonly Privilege[]): readonly Ordered[] {
  const inRelation = groupBy(all, p => `${p.relation} ${p.privilege}`)
  const depths = [...inRelation.values()].flatMap(near => near.map(p => ({ p, depth: depth(p, near) })))
  // A relation's before its columns': taking back the first takes the others along, so they go in the other order then.
  return depths.sort((a, b) => a.depth - b.depth || Number(a.p.column !== null) - Number(b.p.column !== null))
}

/** Gives back: what is granted by nobody but the owner first, what stands on it afterwards. */
export function grants(all: readonly Privilege[]): readonly PrivilegeStatement[] {
  return grouped(ordered(all), true).map(group => statement('grant', group))
}

/** Takes away, from the ends of each chain of grants: a REVOKE that would take more along than is on record fails instead. */
export function revokes(all: readonly Privilege[]): readonly PrivilegeStatement[] {
  return grouped([...ordered(all)].reverse(), false).map(group => statement('revoke', group))
}

/** Neighbours in the order that one statement can carry. */
function grouped(all: readonly Ordered[], byOption: boolean): readonly (readonly Privilege[])[] {
  const key = ({ p, depth: d }: Ordered) =>
    JSON.stringify([d, p.column === null, p.relation, p.grantee, p.byOwner ? null : p.grantor, byOption && p.grantable])
  return [...groupBy(all, key).values()].map(group => group.map(o => o.p))
}

function statement(verb: 'grant' | 'revoke', group: readonly Privilege[]): PrivilegeStatement {
  const [first] = group
  if (first === undefined) throw new RangeError('a statement needs a privilege')
  const byPrivilege = [...groupBy(group, p => p.privilege)].sort(([a], [b]) => a.localeCompare(b))
  const list = byPrivilege.map(([name, ps]) => {
    const columns = ps.flatMap(p => (p.column === null ? [] : [identifier(p.column)]))
    return name.toLowerCase() + (columns.length === 0 ? '' : ` (${columns.join(', ')})`)
  })
  const role = first.grantee === null ? 'public' : identifier(first.grantee)
  const option = verb === 'grant' && first.grantable ? ' with grant option' : ''
  const sql = `${verb} ${list.join(', ')} on ${first.relation} ${verb === 'grant' ? 'to' : 'from'} ${role}${option}`
  return { as: first.byOwner ? null : first.grantor, sql }
}

/** In the order of first sight. */
export function groupBy<T>(all: readonly T[], key: (one: T) => string): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>()
  for (const one of all) {
    const group = groups.get(key(one))
    if (group === undefined) groups.set(key(one), [one])
    else group.push(one)
  }
  return groups
}
