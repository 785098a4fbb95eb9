import pg from 'pg'
import type { Config } from '../../domain/config.ts'
import { FAILOVER_GRANTS, type Grant } from './failover-grants.ts'
import { CONTROL_SCHEMA, type RenderedStatement } from './schema.ts'

const MOVE = ['key', 'seq', 'state', 'home_region', 'epoch', 'target_region', 'run_id']
const LEASE = ['token', 'holder_host', 'holder_pid', 'holder_user', 'lease_until']
const PREDECESSOR = ['prev_seq', 'from_state', 'from_home', 'from_epoch', 'from_target', 'from_run']
const RUN = ['id', 'plan_id', 'runbook_name', 'runbook_text', 'runbook_sha256', 'runbook_origin', 'intent', 'dropped', 'reason']
const POLICY = ['policy_id', 'needs_barrier', 'needs_versions', 'needs_idempotency']
const PROOFS = ['fence_evidence_id', 'barrier_evidence_id', 'versions_evidence_id', 'idempotency_evidence_id']

/** Nobody but the owner may delete anything; what has no `update` here is append-only for the operator. */
export const GRANTS: readonly Grant[] = [
  { table: 'schema_version', why: 'Read the version.' },
  { table: 'installation', why: 'Read whose control plane this is.' },
  { table: 'interlock_policy', why: 'Read which proofs an activation needs.' },
  {
    table: 'run',
    why: 'Open runs; move their lease and state.',
    insert: [...RUN, 'state', 'open', ...LEASE],
    update: ['state', 'open', ...LEASE, 'ended_at'],
  },
  {
    table: 'run_key',
    why: "Take keys; say how each key's part ended.",
    insert: ['run_id', 'key', 'source', 'target', 'epoch', 'seq', 'hold'],
    update: ['outcome', 'hold', 'seized_by'],
  },
  {
    table: 'ownership_log',
    why: 'Append to the history of ownership.',
    insert: [
      'key',
      'seq',
      'transition',
      ...PREDECESSOR,
      'to_state',
      'to_home',
      'to_epoch',
      'to_target',
      'run_id',
      'token',
      'activation_id',
      'forced_id',
    ],
  },
  { table: 'ownership', why: 'Move the current record along its log.', insert: MOVE, update: [...MOVE, 'changed_at', 'changed_by'] },
  {
    table: 'attempt',
    why: 'Record attempts before their side effect, and how they ended.',
    insert: ['id', 'run_id', 'key', 'step', 'action', 'token'],
    update: ['outcome', 'ended_at', 'result'],
  },
  {
    table: 'evidence',
    why: 'Append evidence.',
    insert: [
      ...['id', 'nth', 'run_id', 'key', 'check_name', 'verdict', 'observed', 'required', 'observer', 'facts', 'step', 'attempt_id'],
      ...['as_of', 'as_of_monotonic_ms'],
    ],
  },
  {
    table: 'activation',
    why: 'Hand ownership over, on evidence.',
    insert: ['id', 'run_id', 'key', 'source', 'target', 'epoch', 'attempt_id', 'token', ...POLICY, ...PROOFS],
  },
  {
    table: 'fence_log',
    why: "Append what happened to a region's fences.",
    insert: ['id', 'region', 'fence', 'kind', 'event', 'at', 'said_by', 'host', 'run_id', 'reason', 'detail'],
  },
  ...FAILOVER_GRANTS,
  { table: 'audit', why: 'Append to the audit chain.', insert: ['seq', 'event', 'run_id', 'key', 'detail', 'prev_hash', 'hash'] },
  { table: 'audit_head', why: 'Move the end of the audit chain.', update: ['seq', 'hash'] },
]

/** User of a login's URL; null when it names none. */
export function loginUser(url: string): string | null {
  const user = decodeURIComponent(new URL(url).username)
  return user === '' ? null : user
}

/**
 * What the operator login may do. Empty when the operator installs too: it owns the tables then, and nothing can be kept from it.
 */
export function grants(config: Config): readonly RenderedStatement[] {
  const operator = loginUser(config.controlPlane.operator.url)
  const admin = config.controlPlane.admin
  if (operator === null || admin === null || loginUser(admin.url) === operator) return []
  const role = pg.escapeIdentifier(operator)
  return [
    { sql: `revoke all on all tables in schema ${CONTROL_SCHEMA} from ${role}`, why: 'What was granted by hand is taken back.' },
    { sql: `grant usage on schema ${CONTROL_SCHEMA} to ${role}`, why: 'The operator login works in this schema.' },
    { sql: `grant select on all tables in schema ${CONTROL_SCHEMA} to ${role}`, why: 'It reads everything.' },
    {
      sql: `grant temporary on database ${pg.escapeIdentifier(decodeURIComponent(new URL(admin.url).pathname.slice(1)))} to ${role}`,
      why: 'doctor puts the constraints it expects into a temporary table, so that the server words both sides alike.',
    },
    { sql: `grant usage on sequence ${CONTROL_SCHEMA}.run_token to ${role}`, why: 'It draws run tokens, and cannot set them back.' },
    ...GRANTS.flatMap(g => {
      const privileges = [privilege('insert', g.insert), privilege('update', g.update)].filter(p => p !== null)
      return privileges.length === 0
        ? []
        : [{ sql: `grant ${privileges.join(', ')} on ${CONTROL_SCHEMA}.${g.table} to ${role}`, why: g.why }]
    }),
  ]
}

function privilege(name: string, columns: readonly string[] | undefined): string | null {
  return columns === undefined ? null : `${name} (${columns.join(', ')})`
}
