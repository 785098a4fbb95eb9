import { createHash } from 'node:crypto'
import type { Config, TableName } from '../../domain/config.ts'

type GuardKind = 'row' | 'statement' | 'outbox'

/** A table the boundary stands on. */
export type Guard = TableName & { readonly key: string; readonly kind: GuardKind }

/** One trigger of a guard. `A`: fires always; `O`: not in replica sessions; `R`: only there. */
export type GuardTrigger = {
  readonly name: string
  readonly event: string
  readonly level: string
  readonly func: string
  readonly enabled: 'A' | 'O' | 'R'
}

/** Everything the boundary stands on: the configured tables, the outbox and the idempotency table. The inbox stays open. */
export function guards(config: Config): readonly Guard[] {
  const all: Guard[] = [
    ...config.guarded.map(t => ({ schema: t.schema, table: t.table, key: t.key, kind: t.guard })),
    { schema: config.outbox.schema, table: config.outbox.table, key: config.outbox.columns.key, kind: 'outbox' },
  ]
  const { idempotency } = config
  if (idempotency !== null) all.push({ schema: idempotency.schema, table: idempotency.table, key: idempotency.key, kind: 'row' })
  return all.filter((g, i) => all.findLastIndex(o => o.schema === g.schema && o.table === g.table) === i)
}

// PostgreSQL fires triggers of one kind in the order of their names: the guard has to see the row as it will be stored.
const NAME = 'zzz_homeregion_'
const ROW = 'for each row'
const STATEMENT = 'for each statement'

/** `stops`: writes end with a lease in this database, so that each commit is checked once more. */
export function guardTriggers(guard: Guard, publishedAt: string | null, stops = false): readonly GuardTrigger[] {
  return [...writeTriggers(guard, publishedAt), ...(stops ? leaseTriggers(guard) : [])]
}

/**
 * A relay marks and purges what it published after the lease's end as well, so of the outbox only new events are checked at the commit. On a
 * bulk-loaded table the guard itself queues one check for each statement.
 */
function leaseTriggers(guard: Guard): readonly GuardTrigger[] {
  const atCommit = `deferrable initially deferred ${ROW}`
  if (guard.kind === 'statement') return []
  if (guard.kind === 'outbox') return [trigger('lease', 'after insert', atCommit, 'lease_at_commit_outbox', 'O')]
  return [trigger('lease', 'after insert or update or delete', atCommit, 'lease_at_commit', 'O')]
}

function writeTriggers(guard: Guard, publishedAt: string | null): readonly GuardTrigger[] {
  const f = guardFunctions(guard.key)
  const truncate = trigger('truncate', 'before truncate', STATEMENT, 'refuse_truncate', 'A')
  const limited = guard.kind === 'outbox' && publishedAt !== null
  if (guard.kind !== 'statement')
    return [
      trigger('insert', 'before insert', ROW, f.insert, 'A'),
      trigger('update', 'before update', ROW, limited ? 'guard_outbox_update' : f.update, 'A'),
      trigger('delete', 'before delete', ROW, limited ? 'guard_outbox_delete' : f.delete, 'A'),
      truncate,
    ]
  return [
    trigger('insert', 'after insert', `referencing new table as new_rows ${STATEMENT}`, f.inserted, 'O'),
    trigger('update', 'after update', `referencing old table as old_rows new table as new_rows ${STATEMENT}`, f.updated, 'O'),
    trigger('delete', 'after delete', `referencing old table as old_rows ${STATEMENT}`, f.deleted, 'O'),
    // Replication fires row triggers only.
    trigger('copied_insert', 'before insert', ROW, f.insert, 'R'),
    trigger('copied_update', 'before update', ROW, f.update, 'R'),
    trigger('copied_delete', 'before delete', ROW, f.delete, 'R'),
    trigger('probe', 'before insert', STATEMENT, 'probe', 'A'),
    truncate,
  ]
}

/** Functions are made per name of the key column, and shared by all tables that use it. */
export function guardFunctions(column: string) {
  const suffix = createHash('sha256').update(column).digest('hex').slice(0, 8)
  return {
    insert: `guard_insert_${suffix}`,
    update: `guard_update_${suffix}`,
    delete: `guard_delete_${suffix}`,
    inserted: `guard_inserted_${suffix}`,
    updated: `guard_updated_${suffix}`,
    deleted: `guard_deleted_${suffix}`,
  } as const
}

function trigger(name: string, event: string, level: string, func: string, enabled: GuardTrigger['enabled']): GuardTrigger {
  return { name: NAME + name, event, level, func, enabled }
}
