import type { Json } from '../../../domain/evidence.ts'
import type { FenceCause } from '../../../domain/fence.ts'
import type { FenceWish } from '../../../domain/fence-wish.ts'
import type { Connection, Row } from '../../postgres/connection.ts'
import { sqlText } from '../sql-file.ts'
import { askFence } from './fence-ask.ts'
import { groupBy, type Privilege, privilege, privilegeText } from './privileges.ts'

export type ReadOnlyStanding = FenceWish & { readonly state: 'applying' | 'applied' | 'lifting'; readonly since: string }

type FenceName = { readonly region: string; readonly name: string }

/** A privilege on record, under the names that it has now. */
export type RecordedPrivilege = {
  readonly item: string
  readonly kind: 'grant' | 'stand-in'
  readonly privilege: Privilege
  /** Why it cannot come back; null: it can. */
  readonly gone: string | null
  /** Nothing is missing without it: its table, column or role went away, or the role owns the table. */
  readonly moot: boolean
  /** What became of its names: renamed, or made anew and found by name alone; null: all is as it was called. */
  readonly told: string | null
  readonly reachable: boolean
  /** The catalogue shows it, by the same grantor. */
  readonly standing: boolean
}

export async function recordedPrivileges(connection: Connection, at: FenceName): Promise<readonly RecordedPrivilege[]> {
  const { rows } = await connection.query('read', sqlText('read-only-items.sql'), [at.region, at.name])
  return rows.map(row => ({
    item: String(row.item),
    kind: row.kind === 'stand-in' ? 'stand-in' : 'grant',
    privilege: privilege(row),
    gone: typeof row.gone === 'string' ? row.gone : null,
    moot: row.moot === true,
    told: typeof row.told === 'string' ? row.told : null,
    reachable: row.reachable === true,
    standing: row.standing === true,
  }))
}

export async function readRecord(connection: Connection, at: FenceName): Promise<ReadOnlyStanding | null> {
  const { rows } = await connection.query('read', `select ${COLUMNS} from homeregion.fence where region = $1 and name = $2`, [
    at.region,
    at.name,
  ])
  return record(rows[0])
}

/** With a cause: makes the record where there is none, and notes the wish where there is one. Locks it until the transaction ends; null: there is none. */
export async function openRecord(connection: Connection, at: FenceName, cause?: FenceCause): Promise<ReadOnlyStanding | null> {
  if (cause !== undefined)
    await connection.query('read', askFence(), [at.region, at.name, 'read-only', cause.reason, cause.by, cause.runId])
  const { rows } = await connection.query('read', `select ${COLUMNS} from homeregion.fence where region = $1 and name = $2 for update`, [
    at.region,
    at.name,
  ])
  return record(rows[0])
}

/** What is on record already stays as it is: it was there before the fence, and what came later was not. */
export async function remember(
  connection: Connection,
  at: FenceName,
  items: readonly { readonly item: string; readonly former: Json }[],
): Promise<void> {
  if (items.length === 0) return
  await connection.query(
    'read',
    `insert into homeregion.fence_item (region, name, item, former)
     select $1, $2, x.item, x.former from jsonb_to_recordset($3::jsonb) as x(item text, former jsonb) on conflict do nothing`,
    [at.region, at.name, JSON.stringify(items)],
  )
  await connection.query('read', `update homeregion.fence set state = 'applying' where region = $1 and name = $2`, [at.region, at.name])
}

export async function markApplied(connection: Connection, at: FenceName): Promise<void> {
  await connection.query('write', `update homeregion.fence set state = 'applied' where region = $1 and name = $2 and state <> 'applied'`, [
    at.region,
    at.name,
  ])
}

export async function forget(connection: Connection, at: FenceName): Promise<void> {
  await connection.query('read', 'delete from homeregion.fence_item where region = $1 and name = $2', [at.region, at.name])
  await connection.query('read', 'delete from homeregion.fence where region = $1 and name = $2', [at.region, at.name])
}

/** What the fence holds, by role and table, and what somebody gave back by hand. */
export function heldLines(recorded: readonly RecordedPrivilege[]): readonly string[] {
  const of = (rs: readonly RecordedPrivilege[]) =>
    [...groupBy(rs, r => JSON.stringify([r.privilege.grantee, r.privilege.relation]))].map(([, group]) => {
      const [first] = group
      const what = new Set(group.map(({ privilege: p }) => (p.column === null ? p.privilege : `${p.privilege} (${p.column})`)))
      return `${first?.privilege.grantee ?? 'PUBLIC'}: no ${[...what].join(', ')} on ${first?.privilege.relation ?? ''}`
    })
  const given = recorded.filter(r => r.kind === 'grant')
  const standIns = new Set(recorded.filter(r => r.kind === 'stand-in' && r.standing).map(r => entry(r.privilege)))
  const back = given.filter(r => r.standing && !standIns.has(entry(r.privilege)))
  return [
    ...of(given.filter(r => !r.standing && r.gone === null)),
    ...back.map(r => `NOT HELD, it was given back by hand: ${privilegeText(r.privilege)}`),
    ...recorded.filter(r => r.kind === 'stand-in' && r.standing).map(r => `stands in while it lasts: ${privilegeText(r.privilege)}`),
  ]
}

function entry(p: Privilege): string {
  return JSON.stringify([p.relation, p.column, p.grantee, p.byOwner ? null : p.grantor, p.privilege])
}

const COLUMNS = `state, reason, applied_by, run_id, asked, to_char(since at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as since`

function record(row: Row | undefined): ReadOnlyStanding | null {
  if (row === undefined) return null
  return {
    state: row.state === 'applied' ? 'applied' : row.state === 'lifting' ? 'lifting' : 'applying',
    since: String(row.since),
    asked: Number(row.asked),
    cause: { reason: String(row.reason), by: String(row.applied_by), runId: typeof row.run_id === 'string' ? row.run_id : null },
  }
}
