import type { Config, RegionConfig } from '../../../domain/config.ts'
import type { Connection } from '../../postgres/connection.ts'
import { guards } from '../guards.ts'
import { relation } from '../quoting.ts'
import { sqlText } from '../sql-file.ts'
import { type Privilege, privilege, restsOn } from './privileges.ts'

/** What every statement about a region's guarded tables is asked with. */
export type WriteScope = {
  /** Quoted names of the guarded tables, the outbox and the idempotency table. */
  readonly tables: readonly string[]
  readonly outbox: string
  /** The relay marks here what it has published: no business write, and stopping it would hold back events that were committed before. */
  readonly publishedAt: string | null
  readonly writers: readonly string[]
  /** Members of homeregion_apply write copies of foreign changes here, which the boundary tells from writes. */
  readonly copies: boolean
}

export function writeScope(config: Config, region: RegionConfig): WriteScope {
  return {
    tables: guards(config).map(relation),
    outbox: relation(config.outbox),
    publishedAt: config.outbox.columns.publishedAt,
    writers: region.database.writers.map(w => w.role),
    copies: config.topology === 'independent',
  }
}

export function scopeParameters(scope: WriteScope): readonly unknown[] {
  return [scope.tables, scope.outbox, scope.publishedAt, scope.writers, scope.copies]
}

export type GrantedWrite = {
  readonly privilege: Privilege
  /** Why it stays: `superuser`, `boundary`, `copies`, `publication`; null: it has to go. */
  readonly spared: string | null
  /** False where this login cannot act as its grantor, and so could not bring it back. */
  readonly reachable: boolean
}

export async function grantedWrites(connection: Connection, scope: WriteScope): Promise<readonly GrantedWrite[]> {
  const { rows } = await connection.query('read', sqlText('read-only-grants.sql'), scopeParameters(scope))
  return rows.map(row => ({
    privilege: privilege(row),
    spared: typeof row.spared_grantee === 'string' ? row.spared_grantee : row.publication === true ? 'publication' : null,
    reachable: row.reachable === true,
  }))
}

export type Revocation = {
  readonly revoked: readonly GrantedWrite[]
  /** What a spared role had from a grantor that is fenced, given by the owner for as long as the fence stands. */
  readonly standIns: readonly Privilege[]
}

export function revocation(found: readonly GrantedWrite[]): Revocation {
  const revoked = new Set(found.filter(f => f.spared === null))
  const goesAlong = (f: GrantedWrite) => [...revoked].some(r => restsOn(f.privilege, r.privilege) || takesAlong(r.privilege, f.privilege))
  for (let grew = true; grew; ) {
    const more = found.filter(f => !revoked.has(f) && goesAlong(f))
    for (const f of more) revoked.add(f)
    grew = more.length > 0
  }
  const stays = found.filter(f => !revoked.has(f)).map(f => f.privilege)
  const standIns = [...revoked].filter(f => f.spared !== null && f.spared !== 'superuser').map(f => standIn(f.privilege))
  return { revoked: [...revoked], standIns: standIns.filter(s => !stays.some(p => p.byOwner && same(p, s))) }
}

/** Taking a privilege of a whole table back takes those of its columns along. */
function takesAlong(whole: Privilege, one: Privilege): boolean {
  return whole.column === null && one.column !== null && same({ ...one, column: null }, whole) && one.grantor === whole.grantor
}

function same(a: Privilege, b: Privilege): boolean {
  return a.relation === b.relation && a.column === b.column && a.grantee === b.grantee && a.privilege === b.privilege
}

function standIn(p: Privilege): Privilege {
  return { ...p, byOwner: true, grantable: false }
}
